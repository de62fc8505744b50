import type { Message, Tool } from '../../../generation/request.ts';

/**
 * Describes tools to a model whose template has no tools, in the words of the Hermes and Qwen templates, which models trained on any tools
 * have seen. Everything here is conversation text, as inert as the client's.
 */
export function injectTools(
  messages: readonly Message[],
  tools: readonly Tool[],
  takesSystem: boolean,
): readonly Message[] {
  const instructions = instructionsFor(tools);
  const [first, ...rest] = messages;
  // Parts are joined by a line break, so one more makes an empty line between them.
  if (first?.role === 'system')
    return [{ role: 'system', content: [...first.content, { type: 'text', text: `\n${instructions}` }] }, ...rest];
  if (first?.role === 'user' && !takesSystem)
    return [{ role: 'user', content: [{ type: 'text', text: `${instructions}\n` }, ...first.content] }, ...rest];
  return [{ role: takesSystem ? 'system' : 'user', content: [{ type: 'text', text: instructions }] }, ...messages];
}

/** Writes a call of an earlier turn; arguments are an object, or text that is not one. */
export function writtenCall(name: string, args: unknown): string {
  const written = typeof args === 'string' ? args : pythonJson(args);
  return `<tool_call>\n{"name": ${JSON.stringify(name)}, "arguments": ${written}}\n</tool_call>`;
}

export function writtenResult(text: string): string {
  return `<tool_response>\n${text}\n</tool_response>`;
}

function instructionsFor(tools: readonly Tool[]): string {
  const lines = tools.map(({ name, description, parameters }) =>
    pythonJson({ type: 'function', function: { name, description, parameters: parameters ?? noParameters } }),
  );
  return `# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
${lines.join('\n')}
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call>`;
}

const noParameters = { type: 'object', properties: {} };

/** Writes JSON with Python's spacing, which models were trained on. */
function pythonJson(value: unknown): string {
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(pythonJson).join(', ')}]`;
  const fields = Object.entries(value).filter(([, field]) => field !== undefined);
  return `{${fields.map(([name, field]) => `${JSON.stringify(name)}: ${pythonJson(field)}`).join(', ')}}`;
}
