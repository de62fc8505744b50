import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';

import { FolderBytes } from '../../../src/inference/files/folder-bytes.ts';
import { newId, promisesOf } from './bytes-contract.ts';

const folder = join(mkdtempSync(join(tmpdir(), 'tokenhouse-bytes-')), 'files');
after(() => rmSync(join(folder, '..'), { recursive: true, force: true }));

const bytes = new FolderBytes(folder);
const namesOf = (id: string): readonly string[] => {
  try {
    return readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((name) => name.includes(id));
  } catch {
    return [];
  }
};

describe('the promises of FileBytes', () => {
  promisesOf(
    () => bytes,
    (id) => Promise.resolve(namesOf(id).length),
  );
});

test('only the owner may read, and only ids of ours are names', async () => {
  const id = newId();
  const source = async function* (): AsyncGenerator<Uint8Array> {
    yield await Promise.resolve(Buffer.from('x'));
  };
  const never = new AbortController().signal;
  await bytes.write(id, source(), never);
  assert.equal(statSync(join(folder, namesOf(id)[0]!)).mode & 0o777, 0o600);
  for (const name of ['../x', '', `${id}x`, id.toUpperCase().replace(/\d/g, 'A'), `${id}\0`]) {
    await assert.rejects(async () => await bytes.write(name, source(), never), /32 hex digits/);
    await assert.rejects(async () => await bytes.read(name, never), /32 hex digits/);
    await assert.rejects(async () => await bytes.remove(name), /32 hex digits/);
  }
});
