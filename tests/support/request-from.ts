import { spawn } from 'node:child_process';

import { assertRuns } from './run.ts';

export interface Request {
  readonly key?: string;
  /** Sent as JSON. */
  readonly body?: object;
  /** Further options of curl. */
  readonly options?: readonly string[];
}

/** A request that is sent by curl in another network: `enter` are the words that start a command there. */
export async function requestFrom(
  enter: readonly string[],
  url: string,
  { key, body, options = [] }: Request = {},
): Promise<{ readonly status: number; readonly text: string }> {
  const [command, ...words] = [
    ...enter,
    ...['curl', '--silent', '--show-error', '--write-out', '\n%{http_code}', ...options],
    ...(key === undefined ? [] : ['--header', `authorization: Bearer ${key}`]),
    ...(body === undefined ? [] : ['--header', 'content-type: application/json', '--data', JSON.stringify(body)]),
    url,
  ];
  const said = await assertRuns(command!, words);
  const end = said.lastIndexOf('\n');
  return { status: Number(said.slice(end + 1)), text: said.slice(0, end) };
}

/** A question that the default model answers with "Paris". */
export const question = {
  model: 'smollm2-135m-instruct',
  messages: [{ role: 'user', content: 'What is the capital of France?' }],
  temperature: 0,
};

/** A streamed answer that is being received. */
export interface Stream {
  /** What has come until now. */
  text(): string;
  /** All of it, when the server has closed it. */
  readonly whole: Promise<string>;
}

/** As `requestFrom`, without waiting for the end. */
export function streamFrom(
  enter: readonly string[],
  url: string,
  key: string,
  body: object,
  options: readonly string[] = [],
): Stream {
  const [command, ...words] = [
    ...enter,
    ...['curl', '--silent', '--show-error', '--no-buffer', ...options, '--header', `authorization: Bearer ${key}`],
    ...['--header', 'content-type: application/json', '--data', JSON.stringify({ ...body, stream: true }), url],
  ];
  const child = spawn(command!, words, { stdio: ['ignore', 'pipe', 'inherit'] });
  let text = '';
  child.stdout.on('data', (part: Buffer) => (text += part.toString()));
  const whole = new Promise<string>((resolve) => child.on('close', () => resolve(text)));
  return { text: () => text, whole };
}

/** What the default model needs some seconds for. */
export const longQuestion = {
  model: question.model,
  messages: [{ role: 'user', content: 'Tell me a long story about a lighthouse.' }],
  temperature: 0,
  max_tokens: 200,
};
