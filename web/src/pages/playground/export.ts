/** The code that sends exactly a request. The key is none of it: programs read it from the environment. */
import { claudeCommand, codexCommand } from '../../components/client-code.ts';
import { at, listAt, stringAt } from './families/family.ts';
import type { Request } from './run.ts';
import type { FamilyName } from './search.ts';

export const keyVariable = 'TOKENHOUSE_KEY';

/** Title and code; the titles are proper names. */
export const exportsOf = (request: Request): readonly (readonly [string, string])[] => [
  ['curl', curlOf(request)],
  ['Python', pythonOf(request)],
  ['JavaScript', javaScriptOf(request)],
  ...(request.family.name === 'completions'
    ? []
    : ([
        ['Claude Code', claudeOf(request)],
        ['Codex', codexOf(request)],
      ] as const)),
];

/** Images in it are hardly worth looking at: each long run of base64 is cut. */
export const shortened = (code: string): string =>
  code.replaceAll(/[A-Za-z0-9+/]{200,}={0,2}/g, (run) => `${run.slice(0, 40)}…(${run.length})`);

/** The body comes from standard input: an argument may be 128 kB long at most. */
export const curlOf = ({ url, family, headers, body }: Request): string =>
  [
    `curl -N ${url}${family.path} \\`,
    `  -H "Authorization: Bearer $${keyVariable}" \\`,
    ...Object.entries(headers).map(([name, value]) => `  -H ${quoted(`${name}: ${value}`)} \\`),
    `  -H 'Content-Type: application/json' \\`,
    `  --data-binary @- <<'JSON'`,
    JSON.stringify(body, null, 2),
    'JSON',
  ].join('\n');

/** For a shell. */
export const quoted = (text: string): string => `'${text.replaceAll("'", String.raw`'\''`)}'`;

interface Client {
  /** Arguments that the client in Python knows; it sends others too, if they are in `extra_body`. */
  readonly known: readonly string[];
  readonly isAnthropic?: true;
  readonly method: string;
  /** Prints the text of a part of a stream, in Python and in JavaScript. */
  readonly streamed: readonly [readonly string[], readonly string[]];
  readonly whole: readonly [string, string];
}

const openAiKnown = ['model', 'stream', 'temperature', 'top_p', 'tools', 'tool_choice'];
const chatKnown = [...openAiKnown, 'max_tokens', 'frequency_penalty', 'presence_penalty', 'seed', 'stop'];

const clients: Readonly<Record<FamilyName, Client>> = {
  chat: {
    known: [...chatKnown, 'messages', 'reasoning_effort', 'response_format'],
    method: 'chat.completions.create',
    streamed: [
      ['if event.choices:', '    print(event.choices[0].delta.content or "", end="", flush=True)'],
      ["process.stdout.write(event.choices[0]?.delta.content ?? '');"],
    ],
    whole: ['print(answer.choices[0].message)', 'console.dir(answer.choices[0].message, { depth: null });'],
  },
  completions: {
    known: [...chatKnown, 'prompt'],
    method: 'completions.create',
    streamed: [
      ['if event.choices:', '    print(event.choices[0].text, end="", flush=True)'],
      ["process.stdout.write(event.choices[0]?.text ?? '');"],
    ],
    whole: ['print(answer.choices[0].text)', 'console.log(answer.choices[0].text);'],
  },
  responses: {
    known: [...openAiKnown, 'instructions', 'input', 'store', 'max_output_tokens', 'reasoning', 'text'],
    method: 'responses.create',
    streamed: [
      ['if event.type == "response.output_text.delta":', '    print(event.delta, end="", flush=True)'],
      ["if (event.type === 'response.output_text.delta') process.stdout.write(event.delta);"],
    ],
    whole: ['print(answer.output)', 'console.dir(answer.output, { depth: null });'],
  },
  messages: {
    // Newer versions have no arguments for sampling any more.
    known: [
      ...['model', 'stream', 'max_tokens', 'system', 'messages', 'stop_sequences', 'thinking', 'output_config'],
      ...['tools', 'tool_choice'],
    ],
    isAnthropic: true,
    method: 'messages.create',
    streamed: [
      [
        'if event.type == "content_block_delta" and event.delta.type == "text_delta":',
        '    print(event.delta.text, end="", flush=True)',
      ],
      ["if (event.delta?.type === 'text_delta') process.stdout.write(event.delta.text);"],
    ],
    whole: ['print(answer.content)', 'console.dir(answer.content, { depth: null });'],
  },
};

export function pythonOf({ url, family, headers, body }: Request): string {
  const { known, isAnthropic, method, streamed, whole } = clients[family.name];
  const [own, extra] = [true, false].map((isKnown) =>
    Object.entries(body).filter(([name]) => known.includes(name) === isKnown),
  ) as [[string, unknown][], [string, unknown][]];
  const args = [
    ...own.map(([name, value]) => `    ${name}=${pythonLiteral(value, 4)},`),
    ...(extra.length === 0 ? [] : [`    extra_body=${pythonLiteral(Object.fromEntries(extra), 4)},`]),
    ...(Object.keys(headers).length === 0 ? [] : [`    extra_headers=${pythonLiteral(headers, 4)},`]),
  ];
  const key = `os.environ["${keyVariable}"]`;
  const isStream = body['stream'] === true;
  return [
    'import os',
    '',
    isAnthropic === true ? 'from anthropic import Anthropic' : 'from openai import OpenAI',
    '',
    isAnthropic === true
      ? `client = Anthropic(base_url="${url}", auth_token=${key}, api_key=None)`
      : `client = OpenAI(base_url="${url}/v1", api_key=${key})`,
    `${isStream ? 'stream' : 'answer'} = client.${method}(`,
    ...args,
    ')',
    ...(isStream ? ['for event in stream:', ...streamed[0].map((line) => `    ${line}`)] : [whole[0]]),
  ].join('\n');
}

/** A text in JSON is one in Python too. */
export function pythonLiteral(value: unknown, indent = 0): string {
  if (value === null || value === undefined) return 'None';
  if (value === true) return 'True';
  if (value === false) return 'False';
  if (typeof value !== 'object') return JSON.stringify(value);
  const inner = ' '.repeat(indent + 4);
  const lines = Array.isArray(value)
    ? value.map((one) => `${inner}${pythonLiteral(one, indent + 4)},`)
    : Object.entries(value).map(([name, one]) => `${inner}${JSON.stringify(name)}: ${pythonLiteral(one, indent + 4)},`);
  const [open, close] = Array.isArray(value) ? '[]' : '{}';
  return lines.length === 0 ? `${open}${close}` : `${open}\n${lines.join('\n')}\n${' '.repeat(indent)}${close}`;
}

export function javaScriptOf({ url, family, headers, body }: Request): string {
  const { isAnthropic, method, streamed, whole } = clients[family.name];
  const isStream = body['stream'] === true;
  const options = Object.keys(headers).length === 0 ? '' : `, { headers: ${JSON.stringify(headers)} }`;
  return [
    isAnthropic === true ? "import Anthropic from '@anthropic-ai/sdk';" : "import OpenAI from 'openai';",
    '',
    isAnthropic === true
      ? `const client = new Anthropic({ baseURL: '${url}', authToken: process.env.${keyVariable}, apiKey: null });`
      : `const client = new OpenAI({ baseURL: '${url}/v1', apiKey: process.env.${keyVariable} });`,
    `const ${isStream ? 'stream' : 'answer'} = await client.${method}(${JSON.stringify(body, null, 2)}${options});`,
    ...(isStream
      ? ['for await (const event of stream) {', ...streamed[1].map((line) => `  ${line}`), '}']
      : [whole[1]]),
  ].join('\n');
}

/** Coding agents have instructions and tools of their own: of the request they get the model, the system text and the last message. */
const claudeOf = ({ url, body }: Request): string =>
  claudeCommand(url, `$${keyVariable}`, String(body['model']), [
    ...optional(systemOf(body), (system) => `--append-system-prompt ${quoted(system)}`),
    `-p ${quoted(lastMessageOf(body))}`,
  ]);

const codexOf = ({ url, body }: Request): string =>
  codexCommand(
    url,
    `$${keyVariable}`,
    String(body['model']),
    [
      ...optional(systemOf(body), (system) => `-c ${quoted(`developer_instructions=${JSON.stringify(system)}`)}`),
      ...optional(effortOf(body), (effort) => `-c ${quoted(`model_reasoning_effort=${JSON.stringify(effort)}`)}`),
      quoted(lastMessageOf(body)),
    ],
    'exec',
  );

const optional = (text: string | undefined, print: (text: string) => string): readonly string[] =>
  text === undefined || text === '' ? [] : [print(text)];

type Body = Request['body'];

const systemOf = (body: Body): string | undefined =>
  stringAt(body, 'system') ??
  stringAt(body, 'instructions') ??
  (stringAt(body, 'messages', 0, 'role') === 'system' ? stringAt(body, 'messages', 0, 'content') : undefined);

const effortOf = (body: Body): string | undefined =>
  stringAt(body, 'reasoning_effort') ??
  stringAt(body, 'reasoning', 'effort') ??
  stringAt(body, 'output_config', 'effort');

/** The text of the last message of the person. */
function lastMessageOf(body: Body): string {
  const turns = [...listAt(body, 'messages'), ...listAt(body, 'input')].filter((turn) => at(turn, 'role') === 'user');
  const texts = turns.map(
    (turn) =>
      stringAt(turn, 'content') ??
      listAt(turn, 'content')
        .map((part) => stringAt(part, 'text') ?? '')
        .join(''),
  );
  return texts.findLast((text) => text !== '') ?? '';
}
