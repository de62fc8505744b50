/**
 * The image, built by a container engine (Podman) of deploy/Dockerfile, and run as the documentation says: by its commands, by the
 * compose files, and as the pods of the Helm chart. The images that it builds on are of our own making (bases/Containerfile).
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';

import { parseAllDocuments } from 'yaml';

import { inRepository, root as repository } from '../../support/repository.ts';
import { longQuestion, question, requestFrom, streamFrom } from '../../support/request-from.ts';
import type { Request } from '../../support/request-from.ts';
import { assertRuns } from '../../support/run.ts';
import { until } from '../../support/service.ts';
import { Engine } from './engine.ts';

const folder = process.env['IMAGE_FOLDER']!;
const dockerfile = inRepository('deploy', 'Dockerfile');
const user = 1000;
const [inference, account] = ['http://127.0.0.1:8080', 'http://127.0.0.1:8081'];
const startTimeoutMs = 120_000;

/** The words of each command of the page's block, as a shell would read them. */
const documented = /^## In a container\n[^]*?```sh\n([^]*?)```/m
  .exec(readFileSync(inRepository('docs', 'install.md'), 'utf8'))![1]!
  .replaceAll('\\\n', ' ')
  .split('\n')
  .map((line) =>
    line
      .replace(/ +#.*$/, '')
      .trim()
      .split(/ +/),
  )
  .filter(([program]) => program === 'docker')
  .map(([, ...words]) => words);
const wordsOf = (command: string): readonly string[] => documented.find(([first]) => first === command)!.slice(1);

let engine: Engine;
before(async () => {
  engine = await Engine.start();
  for (const [target, tag] of [
    ['plain', 'tokenhouse'],
    ['model', 'tokenhouse:model'],
  ] as const) {
    const startedAt = performance.now();
    // The page's command; for the other image with its target and a name of its own.
    const words = wordsOf('build').map((word) => ({ plain: target, tokenhouse: tag, '.': repository })[word] ?? word);
    await engine.build(...words.map((word) => (word === 'deploy/Dockerfile' ? dockerfile : word)));
    console.log(`${target}: built in ${((performance.now() - startedAt) / 1000).toFixed(0)} s`);
  }
});
after(() => engine?.dispose());

const isReady = async (container: string): Promise<boolean> => {
  const { said } = await engine.run('logs', container);
  // One that the engine starts again may end: podman-compose starts the replicas before PostgreSQL is there.
  if ((await engine.inspect(container, '{{.HostConfig.RestartPolicy.Name}}')) === '')
    assert.equal(await engine.inspect(container, '{{.State.Running}}'), 'true', said);
  return /^ready in /m.test(said);
};
const untilReady = (container: string): Promise<void> => until(() => isReady(container), startTimeoutMs);

async function stop(container: string): Promise<void> {
  await engine.podman('stop', container);
  assert.equal(await engine.inspect(container, '{{.State.ExitCode}}'), '0');
}

async function createKey(container: string): Promise<string> {
  return /tkh_[0-9A-Za-z]+/.exec(await engine.exec(container, 'tokenhouse', 'keys', 'create', '--name', 'first'))![0];
}

/**
 * As official clients ask: again after an error of the service that may pass, such as of a replica that had no contact with its database
 * for a second on a busy machine. An answer of the proxy itself, which has no id, is not asked again for.
 */
async function ask(url: string, request: Request): Promise<string> {
  for (let tries = 1; ; tries++) {
    const { status, text } = await requestFrom(engine.network, `${url}/v1/chat/completions`, request);
    if (status < 500 || !text.includes('"request_id"') || tries === triesMax) {
      assert.equal(status, 200, text);
      return text;
    }
    console.log(`asked again: ${text}`);
    await setTimeout(1000);
  }
}
const triesMax = 10;

async function assertAnswers(url: string, key: string): Promise<void> {
  const text = await ask(url, { key, body: question });
  assert.match(text, /Paris/);
}

const charged = async (container: string): Promise<number> =>
  (await engine.exec(container, 'tokenhouse', 'usage', '--limit', '1000')).match(/\$0\.000\d+ {2}finished/g)?.length ??
  0;
const untilCharged = (container: string, count: number): Promise<void> =>
  until(async () => (await charged(container)) === count, 30_000);

/** What the engine makes of a new volume, with the default model: its download is the network's time and not ours. */
async function volumeWithModel(name: string): Promise<void> {
  await engine.podman('run', '--rm', '--volume', `${name}:/data`, 'tokenhouse', '--version');
  const place = await engine.podman('volume', 'inspect', '--format', '{{.Mountpoint}}', name);
  const volume = place.trim();
  const { uid, mode } = statSync(volume);
  assert.deepEqual([uid, mode & 0o777], [user, 0o700], 'the owner and the mode of the folder in the image');
  copyModel(join(volume, 'models'));
  await assertRuns('chown', ['-R', `${user}:${user}`, join(volume, 'models')]);
}

function copyModel(to: string): void {
  const cached =
    process.env['TOKENHOUSE_MODEL_DIR'] ??
    join(process.env['XDG_CACHE_HOME'] || join(homedir(), '.cache'), 'tokenhouse/models');
  cpSync(cached, to, { recursive: true, filter: (file) => !/\.gguf$/.test(file) || /SmolLM2-135M/.test(file) });
}

const megabytes = (bytes: number): string => `${(bytes / 1024 / 1024).toFixed(0)} MB`;
const sizeOf = async (image: string): Promise<number> =>
  Number(await engine.podman('image', 'inspect', '--format', '{{.Size}}', image));

test('what a run leaves that is stopped is cleared by the next one, and what is in use is not', async (t) => {
  const podman = (await import(pathToFileURL(inRepository('tests', 'suites', 'image', 'podman.mjs')).href)) as Podman;
  const place = mkdtempSync(join(folder, 'ended-'));
  const theirs = podman.podmanFolder(place);
  const env = { ...process.env, ...podman.podmanConfiguration(theirs, [process.env['IMAGE_BASES']!]) };
  t.after(() => podman.clearPodman(theirs));
  await assertRuns(
    'podman',
    ['run', '--detach', '--network', 'none', 'docker.io/library/node:24-slim', 'sleep', '1000'],
    { env },
  );
  const mounted = (): number => readFileSync('/proc/self/mounts', 'utf8').split(` ${theirs}/`).length - 1;
  podman.clearEnded(place);
  assert.ok(mounted() > 0);
  const ended = spawnSync('true');
  writeFileSync(join(theirs, 'owner'), `${ended.pid} 1`);
  podman.clearEnded(place);
  assert.deepEqual([mounted(), readdirSync(place)], [0, []]);
});

interface Podman {
  podmanFolder(place: string): string;
  podmanConfiguration(folder: string, stores: readonly string[]): Readonly<Record<string, string>>;
  clearEnded(place: string): void;
  clearPodman(folder: string): void;
}

test('hadolint finds nothing', async () => {
  assert.equal((await assertRuns(process.env['HADOLINT']!, [dockerfile])).trim(), '');
});

test('what it adds to its base is small, and has no sources, no tools and no secrets', async () => {
  const base = await sizeOf('docker.io/library/node:24-slim');
  const [plain, model] = [await sizeOf('tokenhouse'), await sizeOf('tokenhouse:model')];
  console.log(
    `this base ${megabytes(base)}, plain ${megabytes(plain - base)} more, model ${megabytes(model - plain)} more`,
  );
  assert.ok(plain - base <= 130 * 1024 * 1024);
  const mounted = (await engine.podman('image', 'mount', 'tokenhouse')).trim();
  const added = join(mounted, 'opt/tokenhouse');
  assert.ok(existsSync(join(added, 'dist', 'main.js')));
  for (const name of ['src', 'tests', 'docs', '.git', 'data', 'tokenhouse.yaml'])
    assert.ok(!existsSync(join(added, name)), name);
  await engine.podman('image', 'unmount', 'tokenhouse');
});

test('by the commands of the page it starts, answers a published port, and its answer is charged', async () => {
  await volumeWithModel('tokenhouse');
  const startedAt = performance.now();
  await engine.podman('run', ...wordsOf('run'));
  await untilReady('tokenhouse');
  const key = /tkh_[0-9A-Za-z]+/.exec(await engine.podman('exec', ...wordsOf('exec')))![0];
  await assertAnswers(inference, key);
  console.log(`a key and the first answer after ${((performance.now() - startedAt) / 1000).toFixed(1)} s`);
  assert.match(await engine.exec('tokenhouse', 'tokenhouse', 'chat', 'What is the capital of France?'), /Paris/);
  await untilCharged('tokenhouse', 2);
  const page = await requestFrom(engine.network, `${account}/docs`, { options: ['--header', 'accept: text/html'] });
  assert.match(page.text, /<h1 id="documentation">/);
  await engine.podman('healthcheck', 'run', 'tokenhouse');

  assert.equal((await engine.exec('tokenhouse', 'id', '-u')).trim(), String(user));
  const status = await engine.exec('tokenhouse', 'cat', '/proc/1/status');
  for (const line of [/^CapEff:\t0{16}$/m, /^CapBnd:\t0{16}$/m, /^NoNewPrivs:\t1$/m, /^Seccomp:\t2$/m])
    assert.match(status, line);
  for (const place of ['/opt/tokenhouse/x', '/etc/x', '/x', '/usr/x'])
    assert.match(
      (await engine.run('exec', '--user', '0', 'tokenhouse', 'touch', place)).said,
      /Read-only file system/,
      place,
    );

  // A stop lets what runs finish.
  const stream = streamFrom(engine.network, `${inference}/v1/chat/completions`, key, longQuestion);
  await until(() => stream.text().includes('"content"'), 60_000);
  const stopped = stop('tokenhouse');
  await until(async () => /^stopping: /m.test((await engine.run('logs', 'tokenhouse')).said), 30_000);
  assert.doesNotMatch(stream.text(), /\[DONE\]/, 'the answer was over before the stop');
  await stopped;
  assert.match(await stream.whole, /data: \[DONE\]\n\n$/);
  assert.notEqual((await engine.run('healthcheck', 'run', 'tokenhouse')).code, 0);
  await engine.podman('rm', 'tokenhouse');

  // Another image goes on with the volume: the one with the model inside, which needs no network to answer.
  await engine.podman(
    ...['run', '--detach', '--name', 'other', '--init', '--read-only', '--tmpfs', '/tmp'],
    ...[...['--cap-drop', 'ALL', '--network', 'none', '--volume', 'tokenhouse:/data', 'tokenhouse:model']],
  );
  await untilReady('other');
  assert.equal(await charged('other'), 3);
  assert.match(await engine.exec('other', 'tokenhouse', 'chat', 'What is the capital of France?'), /Paris/);
  await untilCharged('other', 4);
  assert.match(await engine.exec('other', 'sh', '-c', 'ls $TOKENHOUSE_MODEL_DIR'), /SmolLM2-135M.*\.gguf/);
  await stop('other');
  await engine.podman('rm', 'other');
});

test('one-node.yaml starts it, and its volume stays when it is taken down', async () => {
  await volumeWithModel('compose_data');
  const file = inRepository('deploy', 'compose', 'one-node.yaml');
  const compose = (...words: readonly string[]): Promise<string> => engine.compose(repository, '-f', file, ...words);
  await compose('up', '-d');
  const container = 'compose_tokenhouse_1';
  await untilReady(container);
  const key = await createKey(container);
  await assertAnswers(inference, key);
  await untilCharged(container, 1);
  const stream = streamFrom(engine.network, `${inference}/v1/chat/completions`, key, longQuestion);
  await until(() => stream.text().includes('"content"'), 60_000);
  await compose('down');
  assert.match(await stream.whole, /data: \[DONE\]\n\n$/);
  await compose('up', '-d');
  await untilReady(container);
  await assertAnswers(inference, key);
  await untilCharged(container, 3);
  await compose('down', '--volumes');
});

test('replicas.yaml starts two of them behind Caddy with TLS, and one that is stopped loses no answer', async () => {
  const place = join(folder, 'compose');
  cpSync(inRepository('deploy', 'compose'), place, { recursive: true });
  mkdirSync(join(place, 'secrets'), { mode: 0o700 });
  for (const name of ['postgres_password', 'secret', 'metrics_token'])
    writeFileSync(join(place, 'secrets', name), `${name.padEnd(64, 'x')}\n`, { mode: 0o644 });
  const settings = { API_DOMAIN: 'api.localhost', ACCOUNT_DOMAIN: 'account.localhost', MODEL: question.model };
  writeFileSync(
    join(place, '.env'),
    Object.entries(settings)
      .map(([name, value]) => `${name}=${value}\n`)
      .join(''),
  );
  writeFileSync(join(place, 'override.yaml'), ofThisComputer);
  const files = ['-f', 'replicas.yaml', '-f', 'override.yaml'];
  const compose = (...words: readonly string[]): Promise<string> => engine.compose(place, ...files, ...words);
  await compose('up', '-d');
  const [first, second] = ['compose_tokenhouse-1_1', 'compose_tokenhouse-2_1'] as const;
  for (const replica of [first, second]) await untilReady(replica);
  const key = await createKey(first);

  const authority = join(folder, 'authority.pem');
  await until(async () => {
    const { code, said } = await engine.run(
      ...['exec', 'compose_caddy_1', 'cat', '/data/caddy/pki/authorities/local/root.crt'],
    );
    if (code === 0) writeFileSync(authority, said);
    return code === 0;
  }, 60_000);
  const options = ['--cacert', authority, '--resolve', '*:443:127.0.0.1'];
  let answers = 0;
  /** A short answer: what it says depends on how this processor rounds, with so small a model. */
  const askShortly = async (): Promise<void> => {
    const text = await ask('https://api.localhost', { key, body: { ...question, max_tokens: 2 }, options });
    assert.match(text, /"content":"[^"]+".*"completion_tokens":2\b/);
    answers++;
  };
  // Caddy has to have found the replicas ready.
  for (const host of ['api', 'account'])
    await until(
      async () => (await requestFrom(engine.network, `https://${host}.localhost/healthz`, { options })).status === 200,
      60_000,
    );
  for (let at = 1; at <= 4; at++) await askShortly();
  const metrics = await requestFrom(engine.network, 'https://account.localhost/metrics', { options });
  assert.equal(metrics.status, 404);

  // Caddy gives each stream to the replica with the fewest, so that both have one.
  const streams = [first, second].map(() =>
    streamFrom(engine.network, 'https://api.localhost/v1/chat/completions', key, longQuestion, options),
  );
  for (const stream of streams) await until(() => stream.text().includes('"content"'), 60_000);
  const isStopping = async () => /^stopping: /m.test((await engine.run('logs', first)).said);
  let hasStopped = false;
  const stopped = compose('stop', 'tokenhouse-1').finally(() => (hasStopped = true));
  await until(isStopping, 30_000);
  for (const stream of streams) assert.doesNotMatch(stream.text(), /\[DONE\]/, 'an answer was over before the stop');
  while (!hasStopped) await askShortly();
  await stopped;
  assert.equal(await engine.inspect(first, '{{.State.ExitCode}}'), '0');
  for (const stream of streams) assert.match(await stream.whole, /data: \[DONE\]\n\n$/);
  answers += streams.length;
  await askShortly();

  // The one that is back answers alone when the other one stops.
  const timesFound = async (): Promise<number> =>
    (await engine.run('logs', 'compose_caddy_1')).said.match(/"host is up","host":"tokenhouse-1:8080"/g)?.length ?? 0;
  const earlier = await timesFound();
  await compose('start', 'tokenhouse-1');
  await until(async () => (await timesFound()) > earlier, startTimeoutMs);
  await compose('stop', 'tokenhouse-2');
  await askShortly();

  await untilCharged(first, answers);
  await engine.exec(first, 'tokenhouse', 'ledger', 'verify');
  await compose('down', '--volumes');
});

/**
 * There is no GPU, so the model server is llama-server: with one thread, because two that wait for each other write two tokens a second
 * where others compute. What such a machine makes slow has time to end.
 */
const ofThisComputer = `services:
  tokenhouse-1: &replica
    stop_grace_period: 300s
    environment:
      TOKENHOUSE_MODELS__0__BACKENDS__0__FLAVOR: llama-server
      TOKENHOUSE_SERVER__LIMITS__DRAIN_TIMEOUT_SECONDS: '240'
  tokenhouse-2: *replica
  vllm:
    command: [--alias, '${question.model}', --ctx-size, '8192', --jinja, --threads, '1']
    deploy: !reset null
`;

test('as the pods of the chart it makes the tables, and two replicas share them and the charges', async () => {
  const secrets = join(folder, 'secrets');
  mkdirSync(secrets);
  for (const name of ['postgres_password', 'secret', 'metrics_token'])
    writeFileSync(join(secrets, name), 'a'.repeat(64), { mode: 0o440 });
  await assertRuns('chown', ['-R', `root:${user}`, secrets]);
  chmodSync(secrets, 0o750);
  const manifests = parseAllDocuments(
    readFileSync(inRepository('deploy', 'helm', 'tokenhouse', 'golden', 'plain.yaml'), 'utf8'),
  ).map((one) => one.toJS() as Manifest);
  await engine.podman('network', 'create', 'pods');
  const ofPostgres = {
    POSTGRES_USER: 'tokenhouse',
    POSTGRES_DB: 'tokenhouse',
    POSTGRES_PASSWORD_FILE: '/run/password',
  };
  await engine.podman(
    ...['run', '--detach', '--name', 'postgres', '--network', 'pods', ...variables(ofPostgres)],
    ...['--volume', `${join(secrets, 'postgres_password')}:/run/password:ro`, 'docker.io/library/postgres:17-bookworm'],
  );
  await until(
    async () => (await engine.run('exec', 'postgres', 'pg_isready', '--host', '127.0.0.1')).code === 0,
    60_000,
  );
  /** The pod's own command, variables and mounts; of its configuration nothing, because there is no vLLM here. */
  const podOf = async (kind: string, name: string): Promise<readonly string[]> => {
    const [container] = manifests.find((one) => one.kind === kind)!.spec!.template!.spec.containers;
    await volumeWithModel(name);
    return [
      ...['run', '--name', name, '--network', 'pods', '--user', `${user}:${user}`, '--read-only', '--cap-drop', 'ALL'],
      ...['--security-opt', 'no-new-privileges', '--tmpfs', '/tmp', '--volume', `${name}:/data`],
      ...['--volume', `${secrets}:/run/secrets/tokenhouse:ro`],
      ...variables(Object.fromEntries(container!.env.map((one) => [one.name, one.value]))),
      'tokenhouse',
      ...container!.args,
    ];
  };
  await engine.podman(...(await podOf('Job', 'job')));
  const replicas = ['first', 'second'] as const;
  for (const replica of replicas) {
    const [command, ...words] = await podOf('Deployment', replica);
    await engine.podman(command!, '--detach', ...words);
  }
  for (const replica of replicas) await untilReady(replica);
  const key = await createKey('first');
  for (const replica of replicas) {
    const address = await engine.inspect(replica, '{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}');
    const url = `http://${address}:8080`;
    assert.equal((await requestFrom(engine.network, `${url}/readyz`)).status, 200);
    await assertAnswers(url, key);
  }
  await untilCharged('first', 2);
  await engine.exec('second', 'tokenhouse', 'ledger', 'verify');
  for (const replica of replicas) await stop(replica);
});

const variables = (of: Readonly<Record<string, string>>): readonly string[] =>
  Object.entries(of).flatMap(([name, value]) => ['--env', `${name}=${value}`]);

interface Manifest {
  readonly kind: string;
  readonly spec?: {
    readonly template?: {
      readonly spec: {
        readonly containers: readonly {
          readonly args: readonly string[];
          readonly env: readonly { readonly name: string; readonly value: string }[];
        }[];
      };
    };
  };
}
