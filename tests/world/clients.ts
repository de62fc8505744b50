/** Clients of the service in a world: they ask, read, and leave where they like. */
import type { Host } from './host.ts';
import { Moment, type Scheduler } from './scheduler.ts';

export interface Answer {
  /** 0: not even a status line. */
  readonly status: number;
  readonly headers: ReadonlyMap<string, string>;
  readonly body: string;
  /** The body came to its end as HTTP says it. */
  readonly isWhole: boolean;
}

export interface Ask {
  readonly host: 'inference' | 'account';
  readonly method?: string;
  readonly path: string;
  readonly key?: string | undefined;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  /** Leaves when so much of the answer has come, or after this time, without a word or with a FIN. */
  readonly leaves?: { readonly bytes: number; readonly ms: number; readonly how: 'reset' | 'fin' } | undefined;
  readonly timeoutMs?: number;
}

const nothing: Answer = { status: 0, headers: new Map(), body: '', isWhole: false };

/** One request on a connection of its own. It never rejects: a connection that breaks is an answer that is not whole. */
export const ask = async (scheduler: Scheduler, host: Host, request: Ask): Promise<Answer> =>
  (await askOnOne(scheduler, host, [request]))[0]!;

/** Requests on one connection, of which none waits for the answer of another; it is left as the first one says. */
export async function askOnOne(
  scheduler: Scheduler,
  host: Host,
  requests: readonly [Ask, ...Ask[]],
): Promise<readonly Answer[]> {
  const [{ host: name, path, leaves, timeoutMs = 120_000 }] = requests;
  const wire = host.connect(name);
  if (wire === undefined) return requests.map(() => nothing);
  const parts: Buffer[] = [];
  let length = 0;
  let tail = '';
  const over = new Moment();
  wire.on('error', () => {});
  for (const name of ['close', 'end']) wire.on(name, () => over.come());
  wire.on('data', (chunk: Buffer) => {
    parts.push(chunk);
    length += chunk.length;
    if (leaves !== undefined && length >= leaves.bytes) leave();
    // A body ends with its last chunk, or with the length that its head tells: only then is it worth a look at all of it.
    tail = (tail + chunk.toString('latin1')).slice(-5);
    if (requests.length === 1 && !isWholeAtLength(parts[0]!) && tail !== '0\r\n\r\n') return;
    if (answersIn(Buffer.concat(parts), requests.length).every(({ isWhole }) => isWhole)) over.come();
  });
  const leave = (): void => {
    if (wire.destroyed) return;
    if (leaves?.how === 'fin') wire.destroy();
    else wire.resetAndDestroy();
    over.come();
  };
  wire.write(requests.map(textOf).join(''));
  if (leaves !== undefined) scheduler.after(leaves.ms, scheduler.world, leave);
  if (!(await over.within(scheduler, timeoutMs))) scheduler.note(`${path} hangs`);
  wire.destroy();
  return answersIn(Buffer.concat(parts), requests.length);
}

function textOf({ method = 'POST', path, key, headers = {}, body = '' }: Ask): string {
  const fields = {
    host: 'localhost',
    ...(key === undefined ? {} : { authorization: `Bearer ${key}` }),
    ...(body === '' ? {} : { 'content-type': 'application/json' }),
    'content-length': String(Buffer.byteLength(body)),
    ...headers,
  };
  const head = Object.entries(fields).map(([name, value]) => `${name}: ${value}\r\n`);
  return `${method} ${path} HTTP/1.1\r\n${head.join('')}\r\n${body}`;
}

/** Whether a head that has come does not tell of chunks. */
const isWholeAtLength = (head: Buffer): boolean => !head.includes('transfer-encoding: chunked');

/** An answer, and how many bytes it has with its head. */
type Read = Answer & { readonly bytes: number };

function answersIn(bytes: Buffer, most: number): readonly Answer[] {
  const answers: Read[] = [];
  for (let from = 0; answers.length < most; from += answers.at(-1)!.bytes) answers.push(answerIn(bytes.subarray(from)));
  return answers;
}

function answerIn(bytes: Buffer): Read {
  const end = bytes.indexOf('\r\n\r\n');
  if (end < 0) return { ...nothing, bytes: bytes.length };
  const [line = '', ...fields] = bytes.toString('latin1', 0, end).split('\r\n');
  const status = Number(line.split(' ')[1]);
  if (status === 100) {
    const next = answerIn(bytes.subarray(end + 4));
    return { ...next, bytes: end + 4 + next.bytes };
  }
  const headers = new Map(
    fields.map((field): [string, string] => {
      const colon = field.indexOf(':');
      return [field.slice(0, colon).toLowerCase(), field.slice(colon + 1).trim()];
    }),
  );
  const rest = bytes.subarray(end + 4);
  if (headers.get('transfer-encoding') !== 'chunked') {
    const length = Number(headers.get('content-length') ?? 0);
    const isWhole = rest.length >= length;
    return { status, headers, body: rest.toString('utf8', 0, length), isWhole, bytes: end + 4 + length };
  }
  const parts: Buffer[] = [];
  for (let at = 0; ;) {
    const lineEnd = rest.indexOf('\r\n', at);
    const length = lineEnd < 0 ? NaN : parseInt(rest.toString('latin1', at, lineEnd), 16);
    const isThere = rest.length >= lineEnd + 2 + length + 2;
    const isWhole = length === 0 && isThere;
    if (isWhole || !isThere || Number.isNaN(length)) {
      const size = isWhole ? end + 4 + lineEnd + 4 : bytes.length;
      return { status, headers, body: Buffer.concat(parts).toString(), isWhole, bytes: size };
    }
    parts.push(rest.subarray(lineEnd + 2, lineEnd + 2 + length));
    at = lineEnd + 2 + length + 2;
  }
}
