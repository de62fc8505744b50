import assert from 'node:assert/strict';
import path from 'node:path';
import { after, describe, it } from 'node:test';
import { fetchModelFile, type FetchOptions } from '../../../src/inference/model-files/fetch-model-file.ts';
import { defaultFetchLimits } from '../../../src/inference/model-files/download-limits.ts';
import { pinHubFile } from '../../../src/inference/model-files/pin.ts';
import { ModelFileError } from '../../../src/inference/model-files/problem.ts';
import { fileServer, sendFile, type FileServer } from './file-server.ts';
import { closedEnvironment, emptyFolder, quick, someBytes, sourceOf } from './surroundings.ts';
import { sha256Of } from '../../support/folder.ts';

const { body, sha256 } = someBytes(300_000);

const servers: FileServer[] = [];
after(() => Promise.all(servers.map((server) => server.close())));

type Listed = readonly { readonly path: string; readonly size?: number; readonly oid?: string }[];

/** A hub that lists files and redirects to a storage host for their bytes, as hubs do. */
async function hub(files: Listed = []): Promise<{ hub: FileServer; storage: FileServer }> {
  const storage = await fileServer((request, response, self) => sendFile(request, response, self, { body }));
  const front = await fileServer((request, response) => {
    const url = request.url ?? '';
    if (url.startsWith('/api/models/o/r/tree/main')) {
      const entries = files.map(({ path: file, size, oid }) => ({
        type: 'file',
        path: file,
        size,
        ...(oid === undefined ? {} : { lfs: { oid, size } }),
      }));
      response.end(JSON.stringify([{ type: 'directory', path: 'sub' }, ...entries]));
    } else if (/^\/o\/r\/resolve\/[^/]+\/.+\.gguf$/.test(url)) {
      response.writeHead(302, { location: `${storage.url}/blob?signature=x`, 'x-linked-etag': `"${sha256}"` }).end();
    } else response.writeHead(404).end();
  });
  servers.push(front, storage);
  return { hub: front, storage };
}

const order = (source: string, server: FileServer, changes: Partial<FetchOptions> = {}): FetchOptions => ({
  sources: [sourceOf(source)],
  sha256,
  directory: emptyFolder(),
  environment: closedEnvironment({ endpoint: server.url, token: 'canary-token' }),
  limits: quick,
  ...changes,
});

async function problemsOf(options: FetchOptions): Promise<readonly { source: string; problem: string }[]> {
  const error = await fetchModelFile(options).then(
    () => assert.fail('it was fetched'),
    (reason: unknown) => reason,
  );
  assert.ok(error instanceof ModelFileError, String(error));
  assert.doesNotMatch(JSON.stringify(error), /canary/);
  return error.attempts;
}

describe('a hub', () => {
  it('gives a file of a revision; its token stays with it', async () => {
    const { hub: front, storage } = await hub();
    const { path: file } = await fetchModelFile(order('hf:o/r/sub/small.Q4_1.gguf@refs/pr/1', front));
    assert.equal(path.basename(file), 'small.Q4_1.gguf');
    assert.equal(sha256Of(file), sha256);
    assert.deepEqual(
      front.seen.map(({ path: asked, authorization }) => [asked, authorization]),
      [['/o/r/resolve/refs%2Fpr%2F1/sub/small.Q4_1.gguf', 'Bearer canary-token']],
    );
    assert.deepEqual(
      storage.seen.map(({ authorization }) => authorization),
      [undefined],
    );
  });

  it('gives the file of a quantization, never a projector', async () => {
    const { hub: front } = await hub(
      [
        { path: 'README.md' },
        { path: 'model-Q4_0.gguf', size: 5, oid: '0'.repeat(64) },
        { path: 'mmproj-Q8_0.gguf', size: 5, oid: '1'.repeat(64) },
        { path: 'sub/Model.q8_0.GGUF', size: 5, oid: '1'.repeat(64) },
        { path: 'model-UD-Q8_0_L.gguf', size: 5, oid: '2'.repeat(64) },
      ].map((file) =>
        file.path.startsWith('sub/') ? { path: 'sub/Model.q8_0.gguf', size: body.length, oid: sha256 } : file,
      ),
    );
    const { path: file } = await fetchModelFile(order('hf:o/r:Q8_0', front));
    assert.equal(sha256Of(file), sha256);
    assert.deepEqual(
      front.seen.map(({ path: asked }) => asked),
      ['/api/models/o/r/tree/main?recursive=true', '/o/r/resolve/main/sub/Model.q8_0.gguf'],
    );
  });

  const refused: readonly (readonly [string, Listed, RegExp])[] = [
    [
      'has no such quantization',
      [{ path: 'm-Q4_0.gguf' }, { path: 'm-Q4_1.gguf' }],
      /no file is Q8_0; there are m-Q4_0\.gguf, m-Q4_1\.gguf/,
    ],
    ['has no model file at all', [{ path: 'model.safetensors' }], /no \.gguf file in this repository/],
    [
      'has several',
      [{ path: 'a-Q8_0.gguf' }, { path: 'b-Q8_0.gguf' }],
      /several files are Q8_0: a-Q8_0\.gguf, b-Q8_0\.gguf; name one/,
    ],
    [
      'has split the file',
      [{ path: 'm-Q8_0-00001-of-00002.gguf' }, { path: 'm-Q8_0-00002-of-00002.gguf' }],
      /split into 2 files there/,
    ],
    [
      'has another file now',
      [{ path: 'm-Q8_0.gguf', size: 5, oid: 'f'.repeat(64) }],
      /has another file under this name/,
    ],
    [
      'has a file with a name that is no file name',
      [{ path: 'a/..\\x-Q8_0.gguf' }],
      /cannot be used on every computer/,
    ],
  ];
  for (const [what, files, words] of refused) {
    it(`that ${what} is a reason in words`, async () => {
      const { hub: front, storage } = await hub(files);
      const [mirror] = await problemsOf(order('hf:o/r:Q8_0', front));
      assert.match(mirror!.problem, words);
      assert.equal(storage.seen.length, 0);
    });
  }

  it('that answers nonsense, or too much, is a reason in words', async () => {
    const { hub: front } = await hub();
    front.answer = (_request, response) => response.end('<html>');
    assert.match(
      (await problemsOf(order('hf:o/r:Q8_0', front)))[0]!.problem,
      /does not list the files of o\/r as a hub does/,
    );
    front.answer = (_request, response) => response.end(Buffer.alloc(9_000_000, ' '));
    assert.match((await problemsOf(order('hf:o/r:Q8_0', front)))[0]!.problem, /is longer than 8388608 bytes/);
  });

  it('behind HF_ENDPOINT comes first, then the public one, each with its own reason', async () => {
    const { hub: front } = await hub();
    front.answer = (_request, response) => response.writeHead(404).end();
    const attempts = await problemsOf(order('hf:o/r/small.gguf@main', front));
    assert.equal(attempts.length, 2);
    assert.equal(attempts[0]!.source, `hf:o/r/small.gguf@main through ${new URL(front.url).host}`);
    assert.match(attempts[0]!.problem, /answers 404: it does not have the file/);
    assert.notEqual(attempts[1]!.source, attempts[0]!.source);
    assert.match(attempts[1]!.problem, /refuses the connection/, 'the proxy of these tests is a closed port');
  });

  it('tells the hash of a file, so that it can be pinned', async () => {
    const { hub: front } = await hub([
      { path: 'm-Q8_0.gguf', size: body.length, oid: sha256 },
      { path: 'unhashed.gguf', size: 5 },
    ]);
    const environment = closedEnvironment({ endpoint: front.url });
    const pin = (text: string) => {
      const source = sourceOf(text);
      assert.ok(source.type === 'hub-file' || source.type === 'hub-quantization');
      return pinHubFile(source, environment, AbortSignal.timeout(20_000), { ...defaultFetchLimits, ...quick });
    };
    const expected = { name: 'm-Q8_0.gguf', sha256, bytes: body.length };
    assert.deepEqual(await pin('hf:o/r:Q8_0'), expected);
    assert.deepEqual(await pin('hf:o/r/m-Q8_0.gguf'), expected);
    await assert.rejects(pin('hf:o/r/unhashed.gguf'), /publishes no sha256 of unhashed\.gguf; then: /);
    await assert.rejects(pin('hf:o/r/missing.gguf'), /does not have missing\.gguf in o\/r/);
  });
});
