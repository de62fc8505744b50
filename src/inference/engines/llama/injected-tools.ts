import type { Message, Tool } from '../../../generation/request.ts';
import { spacedJson, spelled, type CallFormat } from '../../output-parsers/format.ts';

/**
 * Describes tools to a model whose template has no tools, in the words of the Hermes and Qwen templates, which models trained on any tools
 * have seen, and in the form of calls that its template prints, if it prints any. Everything here is conversation text, as inert as the client's.
 */
export function injectTools(
  messages: readonly Message[],
  tools: readonly Tool[],
  format: CallFormat,
  takesSystem: boolean,
): readonly Message[] {
  const instructions = instructionsFor(tools, format);
  const [first, ...rest] = messages;
  // Parts are joined by a line break, so one more makes an empty line between them.
  if (first?.role === 'system')
    return [{ role: 'system', content: [...first.content, { type: 'text', text: `\n${instructions}` }] }, ...rest];
  if (first?.role === 'user' && !takesSystem)
    return [{ role: 'user', content: [{ type: 'text', text: `${instructions}\n` }, ...first.content] }, ...rest];
  return [{ role: takesSystem ? 'system' : 'user', content: [{ type: 'text', text: instructions }] }, ...messages];
}

export function writtenResult(text: string): string {
  return `<tool_response>\n${text}\n</tool_response>`;
}

function instructionsFor(tools: readonly Tool[], format: CallFormat): string {
  const lines = tools.map(({ name, description, parameters }) =>
    spacedJson({ type: 'function', function: { name, description, parameters: parameters ?? noParameters } }),
  );
  return `# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
${lines.join('\n')}
</tools>

For each function call, return ${format.mark === '<tool_call>' && format.name === 'json' ? 'a json object with function name and arguments within <tool_call></tool_call> XML tags' : 'this'}:
${exampleOf(format)}`;
}

function exampleOf(format: CallFormat): string {
  const args = format.arguments.type === 'json' ? '<args-json-object>' : { 'args-name': '<args-value>' };
  return spelled({ ...format, name: 'bare' }, [{ id: 'id', name: '<function-name>', arguments: args }]).trim();
}

const noParameters = { type: 'object', properties: {} };
