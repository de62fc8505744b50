import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';

import { BytesError } from '../../../src/inference/files/file-bytes.ts';
import type { FileBytes } from '../../../src/inference/files/file-bytes.ts';

const never = new AbortController().signal;

async function readAll(bytes: FileBytes, id: string): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of await bytes.read(id, never)) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

export const newId = (): string => randomBytes(16).toString('hex');

async function* pieces(whole: Uint8Array, pieceBytes: number): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < whole.length; at += pieceBytes)
    yield await Promise.resolve(whole.subarray(at, at + pieceBytes));
}

const missing = (error: unknown): boolean => error instanceof BytesError && error.code === 'missing';

/** The promises of `FileBytes`, for each implementation. `leftOvers` tells what of an id is there, cut-off writes included. */
export function promisesOf(open: () => FileBytes, leftOvers: (id: string) => Promise<number>): void {
  const MB = 1_048_576;
  for (const [length, pieceBytes] of [
    [0, 1],
    [1, 1],
    [65_537, 1_000],
    [5 * MB - 1, 65_536],
    [5 * MB, 65_536],
    [5 * MB + 1, 65_536],
    [17 * MB + 3, 100_003],
    // A piece that is larger than what is sent at once.
    [12 * MB, 12 * MB],
  ] as const) {
    test(`${length} bytes in pieces of ${pieceBytes} come back as they were`, async () => {
      const bytes = open();
      const id = newId();
      const whole = randomBytes(length);
      await bytes.write(id, pieces(whole, pieceBytes), never);
      assert.ok((await readAll(bytes, id)).equals(whole));
      await bytes.remove(id);
      await assert.rejects(readAll(bytes, id), missing);
      assert.equal(await leftOvers(id), 0);
    });
  }

  for (const [name, length] of [
    ['in its first bytes', 1_000],
    ['after megabytes', 11 * MB],
  ] as const) {
    test(`a source that fails ${name}: its own error, nothing to read, and nothing left`, async () => {
      const bytes = open();
      const id = newId();
      const failure = new Error('the source fails');
      const failing = async function* (): AsyncGenerator<Uint8Array> {
        yield* pieces(randomBytes(length), 65_536);
        throw failure;
      };
      await assert.rejects(bytes.write(id, failing(), never), (error) => error === failure);
      await assert.rejects(readAll(bytes, id), missing);
      await bytes.remove(id);
      assert.equal(await leftOvers(id), 0);
    });

    test(`stopped ${name}: the reason of the signal, nothing to read, and nothing left`, async () => {
      const bytes = open();
      const id = newId();
      const stopping = new AbortController();
      const endless = async function* (): AsyncGenerator<Uint8Array> {
        yield* pieces(randomBytes(length), 65_536);
        stopping.abort('client-left');
        for (;;) yield await Promise.resolve(Buffer.alloc(65_536));
      };
      await assert.rejects(bytes.write(id, endless(), stopping.signal), (error) => error === 'client-left');
      await assert.rejects(readAll(bytes, id), missing);
      await bytes.remove(id);
      assert.equal(await leftOvers(id), 0);
    });
  }

  test('removing what is not there is no failure', async () => {
    await open().remove(newId());
  });

  test('what is written is not seen before it is whole', async () => {
    const bytes = open();
    const id = newId();
    const slow = async function* (): AsyncGenerator<Uint8Array> {
      yield randomBytes(11 * MB);
      await assert.rejects(readAll(bytes, id), missing);
      yield randomBytes(10);
    };
    await bytes.write(id, slow(), never);
    assert.equal((await readAll(bytes, id)).length, 11 * MB + 10);
    await bytes.remove(id);
  });
}
