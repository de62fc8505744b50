import { inlineRefs } from '../constraints/schema-refs.ts';
import { ApiError } from '../../platform/errors.ts';
import { withoutDroppedKeywords } from './dropped-keywords.ts';
import type { Constraint, GenerationRequest, Tool, ToolChoice } from '../../generation/request.ts';
import type { FamilyFlags } from './route.ts';

/** The form that a request asks for, after mutually exclusive options have been resolved. */
export interface Form {
  readonly tools: readonly Tool[];
  readonly toolChoice: ToolChoice;
  readonly constraint: Constraint | undefined;
}

/**
 * Returns the form of a request, with the references of its schemas inlined (§4.2.3(2)). Throws `json_schema_refs_unsupported` 400, for
 * every tool, and for the answer's schema if it has one.
 *
 * §4.2.3(4): a forced call takes no other form, and an answer of another form is not a call. A tool that must not be called is not offered
 * at all: the only form of `tool_choice: none` that every model and every server obeys.
 */
export function formOf(request: GenerationRequest, flags: FamilyFlags): Form {
  const toolChoice = request.toolChoice ?? { type: 'auto' };
  const tools = request.tools.map((tool, i) => withoutRefs(tool, request.at.tool(i, 'parameters'), flags));
  if (toolChoice.type === 'required' || toolChoice.type === 'function')
    return { tools, toolChoice, constraint: undefined };
  const constraint = enforceable(request.constraint, request.at.constraintText, flags);
  if (toolChoice.type === 'auto' && constraint === undefined) return { tools, toolChoice, constraint };
  return { tools: [], toolChoice: { type: 'none' }, constraint };
}

function withoutRefs(tool: Tool, at: string, flags: FamilyFlags): Tool {
  const parameters = inlined(tool.parameters, at, flags);
  return parameters === tool.parameters ? tool : { ...tool, parameters };
}

function enforceable(constraint: Constraint | undefined, at: string, flags: FamilyFlags): Constraint | undefined {
  if (constraint?.type !== 'json-schema') return constraint;
  return { ...constraint, schema: withoutDroppedKeywords(inlined(constraint.schema, at, flags)) };
}

function inlined(schema: unknown, at: string, flags: FamilyFlags): unknown {
  if (!hasReference(schema)) return schema;
  if (flags.jsonSchemaRefs) return inlineRefs(schema, at);
  throw new ApiError('json_schema_refs_unsupported', 'The model does not support references in a JSON Schema.', {
    param: at,
  });
}

/** Decoding has bounded the nesting depth. */
const hasReference = (value: unknown): boolean =>
  typeof value === 'object' &&
  value !== null &&
  (typeof (value as { readonly $ref?: unknown }).$ref === 'string' || Object.values(value).some(hasReference));
