// Alone in its process: it counts the memory of the process.
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { readGgufHeader } from '../../../../src/inference/engines/llama/gguf-header.ts';
import { ModelRefused } from '../../../../src/inference/engines/llama/model-refused.ts';
import { writeTinyGguf, type TinyGgufOptions } from '../../../support/tiny-gguf.ts';
import { says, words } from './support.ts';

const folder = mkdtempSync(join(tmpdir(), 'tokenhouse-gguf-'));
after(() => rmSync(folder, { recursive: true, force: true }));

function tiny(name: string, options: TinyGgufOptions = {}): string {
  const path = join(folder, `${name}.gguf`);
  writeTinyGguf(path, options);
  return path;
}

/** A file of its own with other bytes. */
function written(bytes: Uint8Array): string {
  const path = join(folder, 'changed.gguf');
  writeFileSync(path, bytes);
  return path;
}

const refused = (words: RegExp) => (error: unknown) => error instanceof ModelRefused && words.test(error.message);

describe('the header of a GGUF file', () => {
  test('tells what the engine wants to know', async () => {
    for (const [options, known] of [
      [{}, { contextLength: 4096, cacheBytesPerToken: 256, hasChatTemplate: true }],
      [
        { contextLength: 128, dimensions: 128, layers: 3 },
        { contextLength: 128, cacheBytesPerToken: 768, hasChatTemplate: true },
      ],
      [
        { chatTemplate: null, tokenizer: 'spm' as const },
        { cacheBytesPerToken: 256, hasChatTemplate: false },
      ],
      [{ script: says(...words(5000)) }, { hasChatTemplate: true }],
    ] as const) {
      const path = tiny('told', options);
      const header = await readGgufHeader(path);
      assert.equal(header.architecture, 'llama');
      assert.equal(header.fileBytes, statSync(path).size);
      assert.equal(header.tensorCount, 3 + 9 * ('layers' in options ? options.layers : 2));
      assert.ok(header.vocabularySize >= ('script' in options ? 5000 : 300), `${header.vocabularySize} tokens`);
      assert.deepEqual({ ...header, ...known }, header);
    }
  });

  test('of a file that ends early is refused wherever it ends', async () => {
    const path = tiny('cut');
    const whole = statSync(path).size;
    for (let bytes = whole - 1; bytes > 0; bytes = Math.floor(bytes * 0.9)) {
      truncateSync(path, bytes);
      await assert.rejects(
        readGgufHeader(path),
        refused(/^(it is truncated|it has \d+ bytes)/),
        `${bytes} of ${whole} bytes`,
      );
    }
  });

  test('of something else is refused in words', async () => {
    const bytes = readFileSync(tiny('base'));
    const changed = (at: number, ...values: number[]) => {
      const copy = Buffer.from(bytes);
      copy.set(values, at);
      return copy;
    };
    const renamed = (from: string, to: string) => {
      const copy = Buffer.from(bytes);
      copy.write(to, copy.indexOf(from));
      return copy;
    };
    const eight = (value: number) => Array.from({ length: 8 }, () => value);
    for (const [what, file, words] of [
      ['nothing', Buffer.alloc(0), /too few/],
      ['text', Buffer.from('this is no model, and has more than twenty-four bytes'), /not a GGUF file/],
      ['a zip', Buffer.concat([Buffer.from('PK\x03\x04'), Buffer.alloc(100)]), /not a GGUF file/],
      ['version 1', changed(4, 1), /version 1/],
      ['big-endian', changed(4, 0, 0, 0, 3), /big-endian/],
      ['2^64 - 1 tensors', changed(8, ...eight(255)), /claims to have .* tensors/],
      ['2^64 - 1 entries', changed(16, ...eight(255)), /claims to have .* entries/],
      ['no tensors', changed(8, ...eight(0)), /no tensors/],
      ['no entries', changed(16, ...eight(0)), /./],
      ['an endless key', changed(24, ...eight(255)), /truncated in its header/],
      [
        'an endless list',
        changed(bytes.indexOf('tokenizer.ggml.tokens') + 29, ...eight(127)),
        /claims|truncated in its header/,
      ],
      ['a list of lists', changed(bytes.indexOf('tokenizer.ggml.tokens') + 25, 9), /list of lists/],
      ['an unknown type', changed(bytes.indexOf('llama.block_count') + 17, 99), /unknown type 99/],
      ['a key twice', renamed('tokenizer.ggml.bos_token_id', 'tokenizer.ggml.eos_token_id'), /a duplicate key/],
      ['no vocabulary', renamed('tokenizer.ggml.tokens', 'tokenizer.ggml.tokenz'), /no vocabulary/],
      ['no architecture', renamed('general.architecture', 'general.architectura'), /its architecture/],
    ] as const) {
      await assert.rejects(readGgufHeader(written(file)), refused(words), what);
    }
  });

  test('of what is no file is refused', async () => {
    await assert.rejects(readGgufHeader(folder), refused(/not a file/));
    await assert.rejects(readGgufHeader(join(folder, 'missing.gguf')), { code: 'ENOENT' });
  });

  test('of 1,000 damaged files is read or refused, and takes neither memory nor a crash', async () => {
    const whole = readFileSync(tiny('healthy', { script: says(...words(50)) }));
    const headerBytes = whole.indexOf('blk.1.ffn_down.weight') + 64;
    const random = numbers(20_260_928);
    const outcomes = { read: 0, refused: 0 };
    const path = join(folder, 'damaged.gguf');
    const before = process.memoryUsage();
    let most = 0;
    for (let seed = 0; seed < 1000; seed++) {
      const damaged = damage(whole, headerBytes, random);
      writeFileSync(path, damaged);
      try {
        const header = await readGgufHeader(path);
        assert.ok(Number.isFinite(header.cacheBytesPerToken) && header.cacheBytesPerToken >= 0);
        assert.ok(header.vocabularySize > 0 && header.tensorCount > 0);
        outcomes.read++;
      } catch (error) {
        assert.ok(error instanceof ModelRefused, `mutation ${seed}: ${String(error)}`);
        outcomes.refused++;
      }
      const { heapUsed, arrayBuffers } = process.memoryUsage();
      most = Math.max(most, heapUsed + arrayBuffers);
    }
    // Both happen, so the damage is neither too light nor too heavy to tell anything.
    assert.ok(outcomes.read > 50 && outcomes.refused > 200, JSON.stringify(outcomes));
    const grown = most - before.heapUsed - before.arrayBuffers;
    assert.ok(grown < 400e6, `${grown} bytes, of which a thousand copies of the file are waste`);
  });
});

/** Flips, overwrites, cuts out, doubles, or cuts off: mostly in the header, where it matters. */
function damage(whole: Buffer, headerBytes: number, random: (below: number) => number): Buffer {
  const copy = Buffer.from(whole);
  const at = () => random(random(4) === 0 ? copy.length : headerBytes);
  switch (random(6)) {
    case 0:
      for (let times = random(8); times >= 0; times--) {
        const place = at();
        copy[place] = (copy[place] ?? 0) ^ (1 << random(8));
      }
      return copy;
    case 1:
      copy.fill(random(256), at(), Math.min(copy.length, at() + random(16)));
      return copy;
    case 2: {
      const place = Math.min(at(), copy.length - 8);
      copy.writeBigUInt64LE(
        [0n, 1n, 2n ** 31n, 2n ** 32n - 1n, 2n ** 53n, 2n ** 63n, 2n ** 64n - 1n][random(7)] ?? 0n,
        place,
      );
      return copy;
    }
    case 3: {
      const place = at();
      return Buffer.concat([copy.subarray(0, place), copy.subarray(place + 1 + random(32))]);
    }
    case 4: {
      const place = at();
      return Buffer.concat([copy.subarray(0, place), copy.subarray(Math.max(0, place - random(32)))]);
    }
    default:
      return copy.subarray(0, at());
  }
}

function numbers(seed: number): (below: number) => number {
  let state = seed >>> 0;
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}
