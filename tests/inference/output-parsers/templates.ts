import { ChatTemplate } from '../../../src/inference/engines/llama/chat-template.ts';

/** How a template of ours prints the calls `m.tool_calls`, in the form of the families that it names. */
interface Family {
  readonly families: string;
  readonly calls: string;
  /** What the template says before the conversation. */
  readonly head?: string;
  /** Printed instead of the content of a turn. */
  readonly content?: string;
}

const each = (call: string): string => `{% for c in m.tool_calls %}{% set f = c.function %}${call}{% endfor %}`;
const fields = (item: string): string => `{% for k, v in f.arguments.items() %}${item}{% endfor %}`;
const text = '{{ v if v is string else v | tojson }}';
const args = '{{ f.arguments | tojson }}';

export const families = {
  hermes: {
    families: 'Qwen 2.5 and 3, QwQ, Hermes, MiMo, Granite 4, Bielik',
    calls: each(
      `{{ '\\n' if not loop.first }}<tool_call>\n{"name": "{{ f.name }}", "arguments": ${args}}\n</tool_call>`,
    ),
  },
  'qwen-xml': {
    families: 'Qwen 3 Coder, Qwen 3.5, Nemotron 3, StepFun 3.5',
    calls: each(
      `{{ '\\n' if not loop.first }}<tool_call>\n<function={{ f.name }}>\n${fields(`<parameter={{ k }}>\n${text}\n</parameter>\n`)}</function>\n</tool_call>`,
    ),
  },
  llama3: {
    families: 'Llama 3',
    calls: each(`{"name": "{{ f.name }}", "parameters": ${args}}{{ '; ' if not loop.last }}`),
  },
  'mistral-array': {
    families: 'Mistral until tokenizer 7',
    calls: `[TOOL_CALLS] [${each(`{% if c.id | length != 9 %}{{ raise_exception('id') }}{% endif %}{"name": "{{ f.name }}", "arguments": ${args}, "id": "{{ c.id }}"}{{ ', ' if not loop.last }}`)}]`,
  },
  mistral: { families: 'Devstral, Ministral 3', calls: each(`[TOOL_CALLS]{{ f.name }}[ARGS]${args}`) },
  'mistral-id': {
    families: 'Mistral Small 3.2',
    calls: each(`[TOOL_CALLS]{{ f.name }}[CALL_ID]{{ c.id }}[ARGS]${args}`),
  },
  'deepseek-fenced': {
    families: 'DeepSeek V3 and R1',
    calls: `<｜tool▁calls▁begin｜>${each(`{{ '\\n' if not loop.first }}<｜tool▁call▁begin｜>function<｜tool▁sep｜>{{ f.name }}\n\`\`\`json\n${args}\n\`\`\`<｜tool▁call▁end｜>`)}<｜tool▁calls▁end｜>`,
  },
  deepseek: {
    families: 'DeepSeek V3.1',
    calls: `<｜tool▁calls▁begin｜>${each(`<｜tool▁call▁begin｜>{{ f.name }}<｜tool▁sep｜>${args}<｜tool▁call▁end｜>`)}<｜tool▁calls▁end｜>`,
  },
  dsml: {
    families: 'DeepSeek V3.2 and V4',
    calls: `{{ '\\n\\n' }}<｜DSML｜function_calls>\n${each(`<｜DSML｜invoke name="{{ f.name }}">\n${fields(`<｜DSML｜parameter name="{{ k }}" string="{{ 'true' if v is string else 'false' }}">${text}</｜DSML｜parameter>\n`)}</｜DSML｜invoke>\n`)}</｜DSML｜function_calls>`,
  },
  glm: {
    families: 'GLM 4.5 and 4.6, Laguna, Ling 3',
    calls: each(
      `{{ '\\n' }}<tool_call>{{ f.name }}\n${fields(`<arg_key>{{ k }}</arg_key>\n<arg_value>${text}</arg_value>\n`)}</tool_call>`,
    ),
  },
  'glm-dense': {
    families: 'GLM 4.7, Spark 2.5',
    calls: each(
      `<tool_call>{{ f.name }}${fields(`<arg_key>{{ k }}</arg_key><arg_value>${text}</arg_value>`)}</tool_call>`,
    ),
  },
  minimax: {
    families: 'MiniMax M2',
    calls: `{{ '\\n' }}<minimax:tool_call>\n${each(`<invoke name="{{ f.name }}">\n${fields(`<parameter name="{{ k }}">${text}</parameter>\n`)}</invoke>\n`)}</minimax:tool_call>`,
  },
  'minimax-list': {
    families: 'MiniMax M1',
    calls: `<tool_calls>\n${each(`{"name": "{{ f.name }}", "arguments": ${args}}{{ '\\n' }}`)}</tool_calls>`,
  },
  nemotron: {
    families: 'Nemotron Nano v2',
    calls: `<TOOLCALL>[${each(`{"name": "{{ f.name }}", "arguments": ${args}}{{ ', ' if not loop.last }}`)}]</TOOLCALL>`,
  },
  cohere: {
    families: 'Command R7B, Command A',
    calls: `<|START_ACTION|>[\n${each(`    {"tool_call_id": "{{ loop.index0 }}", "tool_name": "{{ f.name }}", "parameters": ${args}}{{ ',' if not loop.last }}{{ '\\n' }}`)}]<|END_ACTION|>`,
  },
  apertus: {
    families: 'Apertus',
    calls: `<|tools_prefix|>[${each(`{"{{ f.name }}": ${args}}{{ ', ' if not loop.last }}`)}]<|tools_suffix|>`,
  },
  kimi: {
    families: 'Kimi K2',
    calls: `<|tool_calls_section_begin|>${each(`<|tool_call_begin|>{{ c.id }}<|tool_call_argument_begin|>${args}<|tool_call_end|>`)}<|tool_calls_section_end|>`,
  },
  solar: {
    families: 'Solar Open',
    calls: `<|tool_calls|>${each(`<|tool_call:begin|>{{ c.id }}<|tool_call:name|>{{ f.name }}<|tool_call:args|>${args}<|tool_call:end|>`)}<|calls|>`,
  },
  functionary: { families: 'Functionary 3.1', calls: each(`<function={{ f.name }}>${args}</function>`) },
  gigachat: {
    families: 'GigaChat 3.1',
    calls: `{% set f = m.tool_calls[0].function %}<|function_call|>{"name": "{{ f.name }}", "arguments": ${args}}`,
  },
  lfm: {
    families: 'LFM 2.5 8B',
    calls: `<|tool_call_start|>[${each(`{{ f.name }}(${fields(`{{ k }}={% if v is string %}'{{ v }}'{% else %}{{ v | tojson }}{% endif %}{{ ', ' if not loop.last }}`)}){{ ', ' if not loop.last }}`)}]<|tool_call_end|>`,
  },
  gemma: {
    families: 'Gemma 4',
    calls: `{% macro code(v) %}{% if v is string %}<|"|>{{ v }}<|"|>{% elif v is mapping %}{{ '{' }}{% for k, w in v.items() %}{{ k }}:{{ code(w) }}{{ ',' if not loop.last }}{% endfor %}{{ '}' }}{% elif v is boolean %}{{ 'true' if v else 'false' }}{% elif v is iterable %}[{% for w in v %}{{ code(w) }}{{ ',' if not loop.last }}{% endfor %}]{% else %}{{ v }}{% endif %}{% endmacro %}${each(`<|tool_call>call:{{ f.name }}{{ '{' }}${fields(`{{ k }}:{{ code(v) }}{{ ',' if not loop.last }}`)}{{ '}' }}<tool_call|>`)}`,
  },
  granite3: {
    families: 'Granite 3 (named)',
    head: 'Respond only with <|tool_call|> followed by a JSON list of tools.',
    calls: '',
  },
  lfm2: { families: 'LFM 2 (named)', head: 'List of tools: <|tool_list_start|>[', calls: '' },
  harmony: {
    families: 'gpt-oss (named)',
    calls: each(`<|start|>assistant to=functions.{{ f.name }}<|channel|>commentary json<|message|>${args}<|call|>`),
  },
} as const satisfies Readonly<Record<string, Family>>;

export type FormatName = keyof typeof families;

/** A template that lists tools, and prints calls so. */
export function templateOf(family: Family): string {
  return `{% if tools %}${family.head ?? ''}{{ tools | tojson }}{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.tool_calls %}${family.calls}{% elif m.content %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}`;
}

const made = new Map<FormatName, ChatTemplate>();

export function chatTemplate(name: FormatName): ChatTemplate {
  const template = made.get(name) ?? new ChatTemplate(templateOf(families[name]), { bos: '<s>', eos: '</s>' });
  made.set(name, template);
  return template;
}

export const formatOf = (name: FormatName) => chatTemplate(name).shape.calls;
export const formatNames = Object.keys(families) as FormatName[];
