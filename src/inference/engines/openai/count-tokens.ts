import type { Pool } from 'undici';
import { combineSignals } from '../../../platform/combine-signals.ts';
import type { EngineRequest } from '../../../generation/request.ts';
import { chatMessages, continuationFields, effortFields, readable, toolFields } from './request-body.ts';
import type { UpstreamServer } from './request-body.ts';

export interface CountingBackend {
  readonly pool: Pool;
  readonly server: UpstreamServer;
  /** The base path without the API's version: these routes are next to it. */
  readonly rootPath: string;
  readonly headers: readonly string[];
  readonly signal: AbortSignal;
}

const timeoutMs = 10_000;
const bodyBytesMax = 64 * 1024 * 1024;

/** Asks the backend for the prompt's token count; `undefined` if it has no such route or does not answer. */
export async function countTokens(unguarded: EngineRequest, backend: CountingBackend): Promise<number | undefined> {
  const { server } = backend;
  const { flavor } = server;
  const request = readable(unguarded, server);
  const { prompt } = request;
  if (prompt.type === 'token-ids') return prompt.prompts.reduce((sum, ids) => sum + ids.length, 0);
  // How a server combines a query and a document is unknown.
  if (flavor.counting === 'none' || request.task?.type === 'rank') return undefined;
  if (prompt.type === 'texts') return sumOf(prompt.prompts, (text) => countText(text, backend));
  if (flavor.counting === 'tokenize-inputs') return undefined;
  const fields = {
    messages: chatMessages(prompt.messages),
    ...toolFields(request, flavor),
    ...effortFields(request, server),
    ...continuationFields(request, flavor),
  };
  if (flavor.counting === 'tokenize-messages') {
    // The opening of the answer is counted unless a request says otherwise.
    const counted = await ask('/tokenize', { model: nameIn(server), ...fields }, backend);
    return tokenCount(counted?.['count']);
  }
  if (flavor.counting === 'tokenize-chat') {
    const counted = await ask('/chat_tokenize', fields, backend);
    return lengthOf(counted?.['tokenize_response']);
  }
  const applied = await ask('/apply-template', fields, backend);
  const rendered = applied?.['prompt'];
  return typeof rendered === 'string' ? countText(rendered, backend) : undefined;
}

async function countText(text: string, backend: CountingBackend): Promise<number | undefined> {
  const { flavor } = backend.server;
  if (flavor.counting === 'tokenize-messages') {
    const counted = await ask('/tokenize', { model: nameIn(backend.server), prompt: text }, backend);
    return tokenCount(counted?.['count']);
  }
  if (flavor.counting === 'tokenize-inputs') {
    const ofAll = await ask('/tokenize', { inputs: text, add_special_tokens: true }, backend);
    return lengthOf(ofAll?.['0']);
  }
  if (flavor.counting === 'tokenize-chat') return lengthOf(await ask('/tokenize', { inputs: text }, backend));
  // Like its completions: with the special tokens that begin a text in this vocabulary.
  const counted = await ask('/tokenize', { content: text, add_special: true, parse_special: true }, backend);
  return lengthOf(counted?.['tokens']);
}

/** An adapter that would have to be loaded counts as its base does. */
const nameIn = ({ model, loadedBeside }: UpstreamServer): string => loadedBeside ?? model;

const lengthOf = (tokens: unknown): number | undefined => (Array.isArray(tokens) ? tokens.length : undefined);

async function sumOf(
  texts: readonly string[],
  count: (text: string) => Promise<number | undefined>,
): Promise<number | undefined> {
  let sum = 0;
  for (const text of texts) {
    const tokens = await count(text);
    if (tokens === undefined) return undefined;
    sum += tokens;
  }
  return sum;
}

async function ask(
  path: string,
  body: unknown,
  backend: CountingBackend,
): Promise<Readonly<Record<string, unknown>> | undefined> {
  const { pool, rootPath, headers, signal } = backend;
  try {
    const answer = await pool.request({
      method: 'POST',
      path: rootPath + path,
      headers: headers as string[],
      body: JSON.stringify(body),
      signal: combineSignals([signal, AbortSignal.timeout(timeoutMs)]),
    });
    const chunks: Buffer[] = [];
    let bytes = 0;
    for await (const chunk of answer.body as AsyncIterable<Buffer>) {
      bytes += chunk.length;
      if (bytes > bodyBytesMax) return undefined;
      chunks.push(chunk);
    }
    if (answer.statusCode !== 200) return undefined;
    const value: unknown = JSON.parse(Buffer.concat(chunks).toString());
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : undefined;
  } catch {
    // The caller has an estimate; a backend that is down is reported when it is asked to generate.
    signal.throwIfAborted();
    return undefined;
  }
}

function tokenCount(value: unknown): number | undefined {
  return Number.isSafeInteger(value) && (value as number) >= 0 ? (value as number) : undefined;
}
