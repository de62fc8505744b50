import assert from 'node:assert/strict';
import { connect } from 'node:net';

import { mulberry32 } from '../../support/random.ts';
import type { TestService } from '../../support/service.ts';
import { answersIn } from './answers.ts';
import { catalogue, marker } from './catalogue.ts';
import { chatRequest, plainBody } from './chat.ts';
import { requestBytes } from './raw.ts';

export interface MutationRun {
  readonly from: number;
  readonly count: number;
  readonly seed: number;
}

export interface MutationTally {
  /** Answers by status; 0 counts connections that ended without one. */
  readonly statuses: ReadonlyMap<number, number>;
  readonly milliseconds: number;
}

const parallel = 48;
const endTimeoutMs = 60_000;

/**
 * Sends mutated requests, each on a connection of its own that it then half-closes, to both hosts in turn. Every connection
 * must end, with nothing but whole answers that carry the envelope, or one that the end has cut; then the service must be
 * as it was. A failure names seed and number.
 */
export async function assertMutationsHarmless(service: TestService, run: MutationRun): Promise<MutationTally> {
  const { from, count, seed } = run;
  const urls = [service.url, service.accountUrl];
  const chats = [plainBody, { ...plainBody, stream: true }].map((body) => {
    return requestBytes(service.url, chatRequest(service, body)).toString('latin1');
  });
  const corpus = [...catalogue.map(({ bytes }) => bytes), ...chats].map((bytes) => Buffer.from(bytes, 'latin1'));
  const statuses = new Map<number, number>();
  const startedAt = performance.now();
  let next = from;
  const worker = async (): Promise<void> => {
    while (next < from + count) {
      const number = next++;
      const bytes = mutation(corpus, seed, number);
      const reported = (what: string): string =>
        `${what}; seed ${seed}, number ${number}, bytes ${JSON.stringify(bytes.toString('latin1').slice(0, 2000))}`;
      const received = await exchangeBytes(urls[number % urls.length] ?? '', bytes, number).catch((error: unknown) =>
        assert.fail(reported(String(error))),
      );
      try {
        for (const status of statusesOf(received)) statuses.set(status, (statuses.get(status) ?? 0) + 1);
      } catch (error) {
        assert.fail(reported(String(error)));
      }
    }
  };
  await Promise.all(Array.from({ length: parallel }, worker));
  for (const url of urls) assert.equal((await fetch(`${url}/healthz`)).status, 200);
  assert.deepEqual(
    service.log.filter(({ error, level }) => error === 'internal_error' || level === 'error'),
    [],
  );
  return { statuses, milliseconds: performance.now() - startedAt };
}

function statusesOf(received: string): readonly number[] {
  // Their ends are marked by the closing, or they have no body: not to be distinguished from a cut answer.
  if (received.includes('transfer-encoding') || received.includes('text/event-stream')) return [];
  const answers = answersIn(received);
  for (const { status, headers, body } of answers) {
    if (status === 100) continue;
    assert.match(headers['x-request-id'] ?? '', /^(req_[0-9a-f]{12}|client_[\x21-\x7e]{1,128})$/);
    assert.equal(headers['request-id'], headers['x-request-id']);
    assert.notEqual(status, 500, body);
    if (status < 400 || headers['content-type']?.startsWith('text/html') === true) continue;
    const { error } = JSON.parse(body) as { error: Record<string, unknown> };
    for (const field of ['type', 'code', 'message', 'request_id', 'docs_url'])
      assert.equal(typeof error[field], 'string');
    assert.equal(error['request_id'], headers['x-request-id']);
  }
  return answers.length === 0 ? [0] : answers.map(({ status }) => status);
}

/** Resolves with what came until the other side ended the connection. */
function exchangeBytes(url: string, bytes: Buffer, number: number): Promise<string> {
  const { hostname, port } = new URL(url);
  return new Promise((resolve, reject) => {
    // Many addresses, because closed connections keep their port for a minute.
    const localAddress = hostname === '127.0.0.1' ? `127.0.${1 + (number % 50)}.1` : undefined;
    const socket = connect({ host: hostname, port: Number(port), ...(localAddress && { localAddress }) });
    let received = '';
    const timer = setTimeout(() => {
      socket.destroy();
      reject(new Error('the connection did not end'));
    }, endTimeoutMs);
    socket.setEncoding('latin1');
    socket.on('data', (text: string) => (received += text));
    socket.on('error', () => {});
    socket.on('close', () => {
      clearTimeout(timer);
      resolve(received);
    });
    socket.on('connect', () => {
      // Some in two packets.
      const cut = number % 4 === 0 ? Math.floor(bytes.length / 2) : 0;
      if (cut > 0) socket.write(bytes.subarray(0, cut));
      setImmediate(() => socket.end(bytes.subarray(cut)));
    });
  });
}

/** One to four changes to a request of the corpus, the same for the same seed and number. */
function mutation(corpus: readonly Buffer[], seed: number, number: number): Buffer {
  const random = mulberry32(seed * 1_000_003 + number);
  const pick = (below: number): number => Math.floor(random() * below);
  const one = (): Buffer => corpus[pick(corpus.length)] ?? Buffer.alloc(0);
  let bytes = one();
  // Long fillers are for the table: here they would only cost time.
  if (bytes.length > 2000 && pick(50) > 0) bytes = bytes.subarray(0, 300);
  for (let changes = 1 + pick(4); changes > 0; changes--) bytes = changed(bytes, one, pick);
  // The marker tells whether the two sides still agree.
  return pick(2) === 0 ? bytes : Buffer.concat([bytes, Buffer.from(marker)]);
}

const notifications = Buffer.from('\r\n\0\t\x0b :;,=%"\\/\x7f\x80\xff-+.0123456789abcdefxGETHPO1/chunked', 'latin1');

function changed(bytes: Buffer, other: () => Buffer, pick: (below: number) => number): Buffer {
  const at = pick(bytes.length + 1);
  const length = Math.min(1 + pick(pick(4) === 0 ? 64 : 4), bytes.length - at);
  const [before, part, after] = [bytes.subarray(0, at), bytes.subarray(at, at + length), bytes.subarray(at + length)];
  switch (pick(8)) {
    case 0: {
      const flipped = Buffer.from(bytes);
      if (at < bytes.length) flipped[at] = (flipped[at] ?? 0) ^ (1 << pick(8));
      return flipped;
    }
    case 1:
      return Buffer.concat([before, Buffer.of(notifications[pick(notifications.length)] ?? 0), after]);
    case 2:
      return Buffer.concat([before, Buffer.of(notifications[pick(notifications.length)] ?? 0), part, after]);
    case 3:
      return Buffer.concat([before, after]);
    case 4:
      return Buffer.concat([before, part, part, after]);
    case 5:
      return before;
    case 6: {
      const tail = other().subarray(0, 2000);
      return Buffer.concat([before, tail.subarray(pick(tail.length + 1))]);
    }
    default: {
      // A line of another request in the place between two lines.
      const lines = other().subarray(0, 2000).toString('latin1').split('\r\n');
      const end = bytes.indexOf('\r\n', at);
      if (end < 0) return bytes;
      const line = Buffer.from(`\r\n${lines[pick(lines.length)] ?? ''}`, 'latin1');
      return Buffer.concat([bytes.subarray(0, end), line, bytes.subarray(end)]);
    }
  }
}
