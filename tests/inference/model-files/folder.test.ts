import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, readdirSync, renameSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, it } from 'node:test';
import { fetchModelFile, type FetchOptions } from '../../../src/inference/model-files/fetch-model-file.ts';
import type { FetchProgress } from '../../../src/inference/model-files/meter.ts';
import { ModelFileError } from '../../../src/inference/model-files/problem.ts';
import { closedEnvironment, emptyFolder, quick, someBytes, sourceOf } from './surroundings.ts';

const { body, sha256 } = someBytes(400_000);

/** A source that would fail: what is found must come from the folder. */
const unreachable = sourceOf('http://127.0.0.1:9/small.gguf');

const order = (directory: string, changes: Partial<FetchOptions> = {}): FetchOptions => ({
  sources: [unreachable],
  sha256,
  bytes: body.length,
  directory,
  environment: closedEnvironment(),
  limits: quick,
  ...changes,
});

describe('the model folder', () => {
  for (const name of ['small.gguf', `${sha256}.gguf`, sha256, 'renamed by somebody.gguf']) {
    it(`gives a file that is called ${name.length > 40 ? 'like its hash' : name}`, async () => {
      const directory = emptyFolder();
      writeFileSync(path.join(directory, name), body);
      assert.deepEqual(await fetchModelFile(order(directory)), {
        path: path.join(directory, name),
        source: 'model folder',
        resumed: false,
        alreadyThere: true,
      });
    });
  }

  it('never gives, nor replaces, a file with other bytes', async () => {
    const directory = emptyFolder();
    const other = someBytes(body.length).body;
    writeFileSync(path.join(directory, 'small.gguf'), other);
    await assert.rejects(fetchModelFile(order(directory)), ModelFileError);
    const elsewhere = path.join(emptyFolder(), 'original.gguf');
    writeFileSync(elsewhere, body);
    const found = await fetchModelFile(order(directory, { sources: [unreachable, sourceOf(elsewhere)] }));
    assert.equal(found.path, elsewhere);
    assert.ok(readFileSync(path.join(directory, 'small.gguf')).equals(other));
  });

  it('is read once; the next start only looks at size, times and inode', async () => {
    const directory = emptyFolder();
    const file = path.join(directory, 'small.gguf');
    writeFileSync(file, body);
    const bytesRead = async () => {
      const reports: FetchProgress[] = [];
      await fetchModelFile(order(directory, { onProgress: (progress) => reports.push(progress) })).catch(() => {});
      return Math.max(...reports.filter(({ activity }) => activity === 'checking').map(({ bytes }) => bytes));
    };
    assert.equal(await bytesRead(), body.length);
    assert.equal(await bytesRead(), 0);
    // Another time of change, another inode, or other content under the same time: each is noticed.
    utimesSync(file, new Date(0), new Date(0));
    assert.equal(await bytesRead(), body.length);
    writeFileSync(`${file}.new`, body);
    utimesSync(`${file}.new`, new Date(0), new Date(0));
    renameSync(`${file}.new`, file);
    assert.equal(await bytesRead(), body.length);
    const { atime, mtime } = statSync(file);
    writeFileSync(file, someBytes(body.length).body);
    utimesSync(file, atime, mtime);
    await assert.rejects(fetchModelFile(order(directory)), ModelFileError);
  });

  it('may hold damaged notes', async () => {
    const directory = emptyFolder();
    writeFileSync(path.join(directory, 'small.gguf'), body);
    await fetchModelFile(order(directory));
    const notes = path.join(directory, '.verified');
    for (const name of readdirSync(notes)) writeFileSync(path.join(notes, name), '{"identity":');
    assert.equal((await fetchModelFile(order(directory))).alreadyThere, true);
  });

  it('does not take a folder for a file', async () => {
    const directory = emptyFolder();
    mkdirSync(path.join(directory, 'small.gguf'));
    await assert.rejects(fetchModelFile(order(directory)), ModelFileError);
  });
});

describe('a path', () => {
  it('is used where it is, and nothing is copied', async () => {
    const [directory, elsewhere] = [emptyFolder(), path.join(emptyFolder(), 'mine.gguf')];
    writeFileSync(elsewhere, body);
    const found = await fetchModelFile(order(directory, { sources: [sourceOf(`file:${elsewhere}`)] }));
    assert.deepEqual([found.path, found.alreadyThere], [elsewhere, true]);
    assert.deepEqual(readdirSync(directory), ['.verified']);
  });

  it('that does not fit is a reason, and the next one is tried', async () => {
    const [directory, folder] = [emptyFolder(), emptyFolder()];
    const [missing, short, wrong, right] = ['missing', 'short', 'wrong', 'right'].map((name) =>
      path.join(folder, `${name}.gguf`),
    ) as [string, string, string, string];
    writeFileSync(short, body.subarray(1));
    writeFileSync(wrong, someBytes(body.length).body);
    const bad = [missing, short, wrong].map(sourceOf);
    await assert.rejects(fetchModelFile(order(directory, { sources: bad })), (error) => {
      assert.ok(error instanceof ModelFileError);
      assert.deepEqual(
        error.attempts.map(({ problem }) => problem.replaceAll(/[0-9a-f]{64}/g, '…')),
        [
          'the file does not exist',
          'is another file: it has 399999 bytes, expected 400000',
          'is another file: its sha256 is …, expected …',
        ],
      );
      return true;
    });
    writeFileSync(right, body);
    assert.equal((await fetchModelFile(order(directory, { sources: [...bad, sourceOf(right)] }))).path, right);
  });
});
