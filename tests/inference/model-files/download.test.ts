import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { after, describe, it } from 'node:test';
import { fetchModelFile, type FetchOptions } from '../../../src/inference/model-files/fetch-model-file.ts';
import type { FetchProgress } from '../../../src/inference/model-files/meter.ts';
import { ModelFileError } from '../../../src/inference/model-files/problem.ts';
import { fileServer, sendFile, type Answer, type FileServer, type ServedFile } from './file-server.ts';
import { closedEnvironment, emptyFolder, quick, someBytes, sourceOf } from './surroundings.ts';

const size = 3_000_000;
const { body, sha256 } = someBytes(size);

const servers: FileServer[] = [];
after(() => Promise.all(servers.map((server) => server.close())));

async function serving(answer: Answer): Promise<FileServer> {
  const server = await fileServer(answer);
  servers.push(server);
  return server;
}

/** Each answer in turn; the last one also for everything after it. */
const inTurn = (...files: readonly ServedFile[]): Answer => {
  let count = 0;
  return (request, response, server) =>
    sendFile(request, response, server, files[Math.min(count++, files.length - 1)]!);
};

const order = (server: FileServer, changes: Partial<FetchOptions> = {}): FetchOptions => ({
  sources: [sourceOf(`${server.url}/m.gguf`)],
  sha256,
  bytes: size,
  directory: emptyFolder(),
  environment: closedEnvironment(),
  limits: quick,
  ...changes,
});

function failure(options: FetchOptions): Promise<ModelFileError> {
  return fetchModelFile(options).then(
    () => assert.fail('it was fetched'),
    (error: unknown) => {
      assert.ok(error instanceof ModelFileError, String(error));
      return error;
    },
  );
}

/** What is left in the folder, notes about verified files aside. */
const left = (directory: string): string[] => readdirSync(directory).filter((name) => name !== '.verified');

describe('fetching a file', () => {
  it('delivers it once and then finds it', async () => {
    const server = await serving(inTurn({ body }));
    const options = order(server);
    const first = await fetchModelFile(options);
    assert.deepEqual(first, {
      path: path.join(options.directory, 'm.gguf'),
      source: `${server.url}/m.gguf`,
      resumed: false,
      alreadyThere: false,
    });
    assert.ok(readFileSync(first.path).equals(body));
    assert.deepEqual(left(options.directory), ['m.gguf'], 'no part, lock or note is left');
    const second = await fetchModelFile(options);
    assert.deepEqual([second.path, second.alreadyThere], [first.path, true]);
    assert.equal(server.seen.length, 1);
  });

  it('reports bytes that never go back, up to the whole', async () => {
    const server = await serving(inTurn({ body, cutAfter: 1_000_000 }, { body }));
    const reports: FetchProgress[] = [];
    await fetchModelFile(order(server, { onProgress: (progress) => reports.push(progress) }));
    const fetching = reports.filter(({ activity }) => activity === 'downloading');
    assert.ok(fetching.length >= 2);
    assert.deepEqual(
      fetching.map(({ bytes }) => bytes),
      fetching.map(({ bytes }) => bytes).toSorted((a, b) => a - b),
    );
    assert.deepEqual([fetching.at(-1)?.bytes, fetching.at(-1)?.total], [size, size]);
    assert.equal(fetching.at(-1)?.resumed, false, 'nothing was there before');
  });

  it('takes a file of unknown length', async () => {
    const server = await serving((_request, response) => response.writeHead(200).end(body));
    const { path: file } = await fetchModelFile(order(server, { bytes: undefined }));
    assert.equal(statSync(file).size, size);
  });
});

describe('a connection that breaks off', () => {
  it('is continued where it ended, without fetching a byte twice', async () => {
    const server = await serving(inTurn({ body, cutAfter: 1_234_567 }, { body }));
    const { path: file, resumed } = await fetchModelFile(order(server));
    assert.ok(readFileSync(file).equals(body));
    assert.equal(resumed, false);
    assert.equal(server.seen.length, 2);
    assert.match(server.seen[1]!.range!, /^bytes=\d+-$/);
    assert.equal(server.seen[1]!.ifRange, '"v1"');
    assert.equal(server.sentBytes, 1_234_567 + size - Number(/\d+/.exec(server.seen[1]!.range!)![0]));
  });

  it('may do so again and again, as long as something comes each time', async () => {
    const server = await serving(inTurn(...Array.from({ length: 29 }, () => ({ body, cutAfter: 100_000 })), { body }));
    const { path: file } = await fetchModelFile(order(server));
    assert.ok(readFileSync(file).equals(body));
    assert.equal(server.seen.length, 30);
  });

  it('that never brings anything more is given up, and what is there is kept', async () => {
    const server = await serving(inTurn({ body, cutAfter: 500_000 }, { body, cutAfter: 0 }));
    const options = order(server);
    const error = await failure(options);
    assert.match(error.attempts[0]!.problem, /\(tried 5 times, 500000 bytes are kept\)/);
    assert.equal(server.seen.length, 5);
    assert.deepEqual(left(options.directory), ['m.gguf.part', 'm.gguf.part.json']);
  });

  it('that ends cleanly but early is no success', async () => {
    const short = body.subarray(0, 2_000_000);
    const server = await serving((_request, response) =>
      response.writeHead(200, { 'transfer-encoding': 'chunked' }).end(short),
    );
    const options = order(server);
    const error = await failure(options);
    assert.match(error.attempts[0]!.problem, /delivers another file: its sha256 is/);
    assert.deepEqual(left(options.directory), []);
  });

  it('or goes silent is continued', async () => {
    const server = await serving(inTurn({ body, hangAfter: 700_000 }, { body }));
    const { path: file } = await fetchModelFile(order(server));
    assert.ok(readFileSync(file).equals(body));
    assert.deepEqual(server.seen[1]!.range, 'bytes=700000-');
  });

  it('or never answers ends after the allowed time', async () => {
    const server = await serving(() => {});
    const error = await failure(order(server, { limits: { ...quick, idleTimeoutMs: 50, fruitlessTriesMax: 2 } }));
    assert.match(error.attempts[0]!.problem, /did not send data in time/);
    assert.equal(server.seen.length, 2);
  });

  it('or drips for ever ends with the total time', async () => {
    const server = await serving((_request, response) => {
      response.writeHead(200, { 'content-length': size });
      const drip = setInterval(() => response.write('GGUF'), 20);
      response.on('close', () => clearInterval(drip));
    });
    const error = await failure(order(server, { limits: { ...quick, totalTimeoutMs: 400 } }));
    assert.match(error.message, /not done after 0 s/);
  });
});

describe('a part of an earlier start', () => {
  /** Fetches until `bytes` have been sent, then stops as a Ctrl-C does. */
  async function interrupted(file: ServedFile, bytes: number): Promise<{ server: FileServer; options: FetchOptions }> {
    const abort = new AbortController();
    const server = await serving(inTurn({ ...file, hangAfter: bytes }));
    const options = order(server, { limits: { ...quick, idleTimeoutMs: 20_000 } });
    const part = path.join(options.directory, 'm.gguf.part');
    const onProgress = () => {
      if (existsSync(part) && statSync(part).size === bytes) abort.abort(new Error('stopped'));
    };
    const poll = setInterval(onProgress, 5);
    await assert.rejects(fetchModelFile({ ...options, signal: abort.signal, onProgress }), /stopped/);
    clearInterval(poll);
    assert.deepEqual(left(options.directory), ['m.gguf.part', 'm.gguf.part.json'], 'the lock is gone, the part stays');
    server.seen.length = 0;
    return { server, options: { ...options, limits: quick } };
  }

  it('is continued', async () => {
    const { server, options } = await interrupted({ body }, 1_500_000);
    server.answer = inTurn({ body });
    const reports: FetchProgress[] = [];
    const { path: file, resumed } = await fetchModelFile({
      ...options,
      onProgress: (progress) => reports.push(progress),
    });
    assert.ok(readFileSync(file).equals(body));
    assert.equal(resumed, true);
    assert.deepEqual(
      server.seen.map(({ range, ifRange }) => [range, ifRange]),
      [['bytes=1500000-', '"v1"']],
    );
    const fetching = reports.filter(({ activity }) => activity === 'downloading');
    assert.ok(fetching.every(({ resumed: said, bytes }) => said && bytes >= 1_500_000));
  });

  it('is thrown away when the file has changed there since', async () => {
    const { server, options } = await interrupted({ body: someBytes(size).body, etag: '"old"' }, 1_500_000);
    server.answer = inTurn({ body, etag: '"new"' });
    const { path: file, resumed } = await fetchModelFile(options);
    assert.ok(readFileSync(file).equals(body));
    assert.equal(resumed, false);
    assert.equal(server.seen.length, 1, 'If-Range makes the server send the whole file at once');
  });

  it('of other bytes is found out by the hash when the server has no validator', async () => {
    const { server, options } = await interrupted({ body: someBytes(size).body, etag: null }, 1_500_000);
    server.answer = inTurn({ body, etag: null });
    const { path: file } = await fetchModelFile(options);
    assert.ok(readFileSync(file).equals(body));
    assert.deepEqual(
      server.seen.map(({ range }) => range),
      ['bytes=1500000-', undefined],
    );
  });

  it('that was damaged on the disk is found out by the hash', async () => {
    const { server, options } = await interrupted({ body }, 1_500_000);
    const part = path.join(options.directory, 'm.gguf.part');
    const bytes = readFileSync(part);
    bytes[700_000]! ^= 1;
    writeFileSync(part, bytes);
    server.answer = inTurn({ body });
    const { path: file, resumed } = await fetchModelFile(options);
    assert.ok(readFileSync(file).equals(body));
    assert.equal(resumed, false);
  });

  it('that is whole is only checked', async () => {
    const { server, options } = await interrupted({ body }, 1_500_000);
    writeFileSync(path.join(options.directory, 'm.gguf.part'), body);
    server.answer = inTurn({ body });
    const { path: file } = await fetchModelFile(options);
    assert.ok(readFileSync(file).equals(body));
    assert.equal(server.sentBytes, 1_500_000, 'nothing more was sent');
  });

  it('is continued from another source of the same file', async () => {
    const { server, options } = await interrupted({ body }, 1_500_000);
    const second = await serving(inTurn({ body, etag: '"elsewhere"' }));
    await server.close();
    const { path: file, resumed } = await fetchModelFile({ ...options, sources: [sourceOf(`${second.url}/m.gguf`)] });
    assert.ok(readFileSync(file).equals(body));
    assert.equal(resumed, true);
    assert.deepEqual(
      second.seen.map(({ range, ifRange }) => [range, ifRange]),
      [['bytes=1500000-', undefined]],
    );
  });

  it('begins anew on a server that knows no ranges', async () => {
    const { server, options } = await interrupted({ body }, 1_500_000);
    server.answer = inTurn({ body, ranges: false });
    const { path: file, resumed } = await fetchModelFile(options);
    assert.ok(readFileSync(file).equals(body));
    assert.equal(resumed, false);
  });

  it('begins anew on a server that answers another range than it was asked for', async () => {
    const { server, options } = await interrupted({ body }, 1_500_000);
    server.answer = (request, response, self) => {
      if (request.headers.range === undefined) return sendFile(request, response, self, { body });
      response.writeHead(206, { 'content-length': 10, 'content-range': `bytes 0-9/${size}` }).end(body.subarray(0, 10));
    };
    const { path: file } = await fetchModelFile(options);
    assert.ok(readFileSync(file).equals(body));
    assert.deepEqual(
      server.seen.map(({ range }) => range),
      ['bytes=1500000-', undefined],
    );
  });

  it('without a note of its origin begins anew', async () => {
    const server = await serving(inTurn({ body }));
    const options = order(server);
    writeFileSync(path.join(options.directory, 'm.gguf.part'), body.subarray(0, 1000));
    const { resumed } = await fetchModelFile(options);
    assert.equal(resumed, false);
    assert.equal(server.seen[0]?.range, undefined);
  });
});

describe('wrong bytes', () => {
  it('are thrown away, and the next source is tried', async () => {
    const wrong = await serving(inTurn({ body: someBytes(size).body }));
    const right = await serving(inTurn({ body }));
    const options = order(right, { sources: [sourceOf(`${wrong.url}/m.gguf`), sourceOf(`${right.url}/m.gguf`)] });
    const { source, path: file } = await fetchModelFile(options);
    assert.equal(source, `${right.url}/m.gguf`);
    assert.ok(readFileSync(file).equals(body));
    assert.equal(wrong.seen.length, 1, 'they are not fetched again');
    assert.equal(right.seen[0]?.range, undefined, 'nothing of them is used');
  });

  it('from every source leave nothing but the reasons and what to do', async () => {
    const server = await serving(inTurn({ body: someBytes(size).body }));
    const options = order(server);
    const error = await failure(options);
    assert.deepEqual(
      error.attempts.map(({ source }) => source),
      [`${server.url}/m.gguf`],
    );
    assert.match(error.attempts[0]!.problem, new RegExp(`its sha256 is [0-9a-f]{64}, expected ${sha256}`));
    assert.match(error.remedies.join('\n'), /TOKENHOUSE_MODEL_DIR[^]*another source/);
    assert.deepEqual(left(options.directory), []);
  });

  it('of another length are refused before they are fetched', async () => {
    const server = await serving(inTurn({ body: someBytes(size + 1).body }));
    const options = order(server);
    assert.match((await failure(options)).attempts[0]!.problem, /it has 3000001 bytes, expected 3000000/);
    assert.deepEqual(left(options.directory), []);
  });

  it('beyond the announced end are not written', async () => {
    const server = await serving((_request, response) =>
      response.writeHead(200).end(Buffer.concat([body, Buffer.alloc(10_000_000)])),
    );
    const options = order(server);
    assert.match((await failure(options)).attempts[0]!.problem, /delivers more than the 3000000 bytes/);
    assert.ok(left(options.directory).every((name) => statSync(path.join(options.directory, name)).size <= size));
  });

  it('that are compressed unasked are refused', async () => {
    const server = await serving(inTurn({ body, headers: { 'content-encoding': 'gzip' } }));
    assert.match((await failure(order(server))).attempts[0]!.problem, /encoded as gzip, unasked/);
  });
});

describe('a server that does not deliver', () => {
  for (const [status, words] of [
    [404, /does not have the file/],
    [410, /does not have the file/],
    [401, /credentials are missing or wrong/],
    [403, /credentials are missing or wrong/],
    [400, /answers 400/],
  ] as const) {
    it(`is asked once when it answers ${status}`, async () => {
      const server = await serving((_request, response) => response.writeHead(status).end('canary'));
      const error = await failure(order(server));
      assert.match(error.attempts[0]!.problem, words);
      assert.doesNotMatch(error.message, /canary/);
      assert.equal(server.seen.length, 1);
    });
  }

  it('is asked again when it answers 503 or 429, and given up in the end', async () => {
    let count = 0;
    const server = await serving((request, response, self) => {
      if (++count <= 2) response.writeHead(count === 1 ? 503 : 429, { 'retry-after': '1000000' }).end();
      else sendFile(request, response, self, { body });
    });
    await fetchModelFile(order(server));
    assert.equal(server.seen.length, 3);
    server.answer = (_request, response) => response.writeHead(503).end();
    assert.match((await failure(order(server))).attempts[0]!.problem, /answers 503 \(tried 4 times/);
  });

  it('or is not there at all is left soon', async () => {
    const server = await serving(inTurn({ body }));
    const options = order(server);
    await server.close();
    assert.match((await failure(options)).attempts[0]!.problem, /refuses the connection \(tried 2 times/);
  });

  it('or has too much for the disk is refused before anything is written', async () => {
    const server = await serving((_request, response) => {
      response.writeHead(200, { 'content-length': 9e14 });
      response.flushHeaders();
    });
    const options = order(server, { bytes: undefined });
    assert.match(
      (await failure(options)).attempts[0]!.problem,
      /bytes are needed in .* are free there; free some space/,
    );
    assert.deepEqual(left(options.directory), []);
  });
});

describe('redirects', () => {
  it('are followed, with credentials for the first host only', async () => {
    const storage = await serving(inTurn({ body }));
    const front = await serving((request, response) => {
      const next = request.url === '/m.gguf' ? '/again/m.gguf' : `${storage.url}/signed/m.gguf?signature=x`;
      response.writeHead(302, { location: next }).end();
    });
    const withKey = front.url.replace('http://', 'http://somebody:canary@');
    const options = order(front, { sources: [sourceOf(`${withKey}/m.gguf`)] });
    const { source } = await fetchModelFile(options);
    assert.equal(source, `${front.url}/m.gguf`, 'the label holds no credentials');
    const basic = `Basic ${Buffer.from('somebody:canary').toString('base64')}`;
    assert.deepEqual(
      front.seen.map(({ authorization }) => authorization),
      [basic, basic],
    );
    assert.deepEqual(
      storage.seen.map(({ authorization }) => authorization),
      [undefined],
    );
  });

  it('that go in a circle end', async () => {
    const server = await serving((_request, response) => response.writeHead(302, { location: '/m.gguf' }).end());
    assert.match((await failure(order(server))).attempts[0]!.problem, /more than 5 redirects/);
    assert.equal(server.seen.length, 6);
  });

  for (const location of ['ftp://127.0.0.1/m.gguf', 'file:///etc/passwd', 'http://[::bad/m.gguf']) {
    it(`to ${location} are not followed`, async () => {
      const server = await serving((_request, response) => response.writeHead(302, { location }).end());
      assert.match((await failure(order(server))).attempts[0]!.problem, /not safe to follow|not a URL/);
      assert.equal(server.seen.length, 1);
    });
  }
});

it('a stop ends the wait at once', async () => {
  const server = await serving(() => {});
  const abort = new AbortController();
  const options = order(server, { signal: abort.signal, limits: { ...quick, idleTimeoutMs: 60_000 } });
  const running = fetchModelFile(options);
  while (server.seen.length === 0) await new Promise((resolve) => setImmediate(resolve));
  abort.abort(new Error('stopped'));
  await assert.rejects(running, /stopped/);
  assert.deepEqual(left(options.directory), []);
});

it('a folder that cannot be written to is named as the reason', async () => {
  const server = await serving(inTurn({ body }));
  const directory = path.join(emptyFolder(), 'file');
  writeFileSync(directory, 'a file where the folder should be');
  const error = await failure(order(server, { directory }));
  assert.match(error.attempts[0]!.problem, /folder|EEXIST|ENOTDIR/);
  assert.equal(server.seen.length, 0);
});
