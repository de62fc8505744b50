import { OperationError } from '../accounts/operation.ts';
import { CommandFailure } from './command-failure.ts';
import type { Context } from './context.ts';
import { exitCodes } from './failure.ts';

/** A list in the account API. */
export interface ApiList {
  readonly path: `/v1/${string}`;
  readonly query?: Readonly<Record<string, string | boolean | undefined>>;
  /** The account, if the route is about one; undefined: the key's account. */
  readonly account?: string | undefined;
  /** The maximum number of rows; undefined if the route has no pages. */
  readonly limit: number | undefined;
}

export interface Elsewhere {
  /** Address of the account host. */
  readonly at: string;
  readonly key?: string;
}

const timeoutMs = 30_000;
const pageMax = 100;

/** Reads a list from a service on another machine, with a management key, page by page. */
export async function listElsewhere<Row>(
  { environment }: Pick<Context, 'environment'>,
  { at, key = environment.variable('TOKENHOUSE_KEY') }: Elsewhere,
  { path, query = {}, account, limit }: ApiList,
): Promise<readonly Row[]> {
  if (key === undefined)
    throw new CommandFailure({
      what: ['A service on another machine needs a key.'],
      why: 'the account API is asked with a management key',
      repair: ['export TOKENHOUSE_KEY="$(tokenhouse keys create --role viewer)", on the machine of the service'],
      exitCode: exitCodes.usage,
    });
  const headers = { authorization: `Bearer ${key}`, ...(account === undefined ? {} : { 'x-account-id': account }) };
  const rows: Row[] = [];
  for (let after: string | undefined; ;) {
    const url = new URL(`${at}${path}`);
    const left = limit === undefined ? undefined : limit - rows.length;
    const asked = { ...query, limit: left === undefined ? undefined : Math.min(pageMax, left), after };
    for (const [name, value] of Object.entries(asked))
      if (value !== undefined) url.searchParams.set(name, String(value));
    const page = (await answerOf(url, headers)) as { readonly data?: readonly Row[]; readonly next_after?: string };
    if (!Array.isArray(page.data)) throw notTheApi(at, 'it answers in another form');
    rows.push(...page.data.slice(0, left));
    // An empty page that announces more would be requested endlessly.
    if (page.next_after === undefined || page.data.length === 0 || rows.length === limit) return rows;
    after = page.next_after;
  }
}

async function answerOf(url: URL, headers: Readonly<Record<string, string>>): Promise<unknown> {
  let answer;
  try {
    answer = await fetch(url, { headers, redirect: 'error', signal: AbortSignal.timeout(timeoutMs) });
  } catch (error) {
    const { message, cause } = error as Error;
    throw notTheApi(url.origin, cause instanceof Error ? cause.message : message);
  }
  const body = (await answer.json().catch(() => undefined)) as { readonly error?: { readonly message?: unknown } };
  if (answer.ok) return body;
  const said = body?.error?.message;
  if (typeof said !== 'string') throw notTheApi(url.origin, `it answers with status ${answer.status}`);
  if (answer.status < 500) throw new OperationError(said);
  throw notTheApi(url.origin, said);
}

const notTheApi = (at: string, why: string): CommandFailure =>
  new CommandFailure({
    what: [`The account API does not answer at ${at}.`],
    why,
    repair: ['--at takes the address of the account host, for example https://accounts.example.com'],
    exitCode: exitCodes.unavailable,
  });
