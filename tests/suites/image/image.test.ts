/**
 * The image, without a container engine: the steps of deploy/Dockerfile are done in folders, on Debian's base with Node and npm as
 * `node:24-slim` has them. What comes out runs as an engine runs it: its own root, mounted read-only, as its user without any rights,
 * with a network of its own, and /data and /tmp to write to; and as the pods of the Helm chart.
 */
import assert from 'node:assert/strict';
import { execFile, spawn, spawnSync } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import {
  chmodSync,
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { after, before, test } from 'node:test';

import { parseAllDocuments } from 'yaml';

import { PostgresServer } from '../postgres/server.ts';
import { environmentOf, isIgnored, stagesOf, wordsOf } from '../../support/dockerfile.ts';
import { freePort } from '../../support/free-port.ts';
import { inRepository, root as repository } from '../../support/repository.ts';
import { until } from '../../support/service.ts';

const folder = mkdtempSync(join(tmpdir(), 'tokenhouse-image-'));
const dockerfile = inRepository('deploy', 'Dockerfile');
const stages = stagesOf(readFileSync(dockerfile, 'utf8'));
const plain = stages.get('plain')!;
const path = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';
const rootOf = (stage: string): string => join(folder, stage);
const user = 1000;

interface Ran {
  readonly code: number | null;
  readonly said: string;
}

function run(command: string, args: readonly string[]): Promise<Ran> {
  return new Promise((resolve) =>
    execFile(command, args, { maxBuffer: 64 * 1024 * 1024 }, (error, stdout, stderr) =>
      resolve({ code: error === null ? 0 : Number(error.code ?? 1), said: stdout + stderr }),
    ),
  );
}

async function assertRuns(command: string, args: readonly string[]): Promise<string> {
  const { code, said } = await run(command, args);
  assert.equal(code, 0, `${command} ${args.join(' ')}\n${said.slice(-4000)}`);
  return said;
}

/** A command of root in a root of its own, as `RUN` has it: with name servers and the registries of this computer. */
function runIn(stage: string, directory: string, variables: Readonly<Record<string, string>>, script: string) {
  const own = { PATH: path, HOME: '/root', ...variables };
  for (const file of ['/etc/resolv.conf', '/etc/hosts']) copyFileSync(file, join(rootOf(stage), file));
  return assertRuns('unshare', [
    ...['--mount', 'sh', '-c', 'mount -t proc proc "$0/proc" && exec chroot "$@"', rootOf(stage), rootOf(stage)],
    ...['env', '-i', ...Object.entries(own).map(([name, value]) => `${name}=${value}`)],
    ...['sh', '-c', `cd ${directory} && ${script}`],
  ]);
}

/** How this computer reaches the registries: not a part of the image. */
function registries(stage: string): Readonly<Record<string, string>> {
  for (const [file, to] of [
    [join(homedir(), '.npmrc'), '/root/.npmrc'],
    ['/etc/npmrc', '/usr/local/etc/npmrc'],
    [process.env['NODE_EXTRA_CA_CERTS'] ?? '', '/tmp/authorities.pem'],
  ] as const) {
    if (!existsSync(file)) continue;
    mkdirSync(dirname(join(rootOf(stage), to)), { recursive: true });
    copyFileSync(file, join(rootOf(stage), to));
  }
  return {
    ...Object.fromEntries(
      Object.entries(process.env).flatMap(([name, value]) =>
        /^(npm_config_|https?_proxy$|no_proxy$)/i.test(name) && value !== undefined ? [[name, value]] : [],
      ),
    ),
    ...(existsSync(join(rootOf(stage), '/tmp/authorities.pem')) ? { NODE_EXTRA_CA_CERTS: '/tmp/authorities.pem' } : {}),
  };
}

/** What `node:24-slim` is made of. */
async function makeBase(): Promise<void> {
  const base = rootOf('node:24-slim');
  mkdirSync(base);
  await assertRuns('tar', ['-xf', process.env['DEBIAN_ROOT']!, '-C', base]);
  copyFileSync(process.env['NODE_OF_IMAGE']!, join(base, 'usr/local/bin/node'));
  chmodSync(join(base, 'usr/local/bin/node'), 0o755);
  cpSync(process.env['NPM_OF_IMAGE']!, join(base, 'usr/local/lib/node_modules/npm'), { recursive: true });
  symlinkSync('../lib/node_modules/npm/bin/npm-cli.js', join(base, 'usr/local/bin/npm'));
  await runIn('node:24-slim', '/', {}, 'groupadd --gid 1000 node && useradd --uid 1000 --gid node --create-home node');
}

/** Carries out the instructions of a stage that change its files. */
async function makeStage(name: string): Promise<void> {
  const [from, ...steps] = stages.get(name)!;
  await assertRuns('cp', ['-a', rootOf(/^FROM (\S+)/.exec(from!)![1]!), rootOf(name)]);
  let directory = '/';
  for (const [at, step] of steps.entries()) {
    const [, instruction, text = ''] = /^([A-Z]+) (.*)$/.exec(step)!;
    const [first = '', second = '', third = ''] = text.split(' ');
    if (instruction === 'WORKDIR') mkdirSync(join(rootOf(name), (directory = text)), { recursive: true });
    else if (instruction === 'RUN')
      await runIn(name, directory, { ...environmentOf(steps.slice(0, at)), ...registries(name) }, text);
    else if (instruction !== 'COPY') continue;
    else if (first === '.') copyContext(join(rootOf(name), directory));
    else {
      const to = join(rootOf(name), third);
      mkdirSync(dirname(to), { recursive: true });
      await assertRuns('cp', ['-a', join(rootOf(first.replace('--from=', '')), second), to]);
    }
  }
}

function copyContext(to: string): void {
  const ignore = readFileSync(inRepository('.dockerignore'), 'utf8');
  const filter = (file: string): boolean => file === repository || !isIgnored(relative(repository, file), ignore);
  cpSync(repository, to, { recursive: true, filter });
}

interface Container {
  readonly process: ChildProcess;
  readonly variables: readonly string[];
  said: string;
}

interface Start {
  readonly words: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
  /** The volume. */
  readonly data: string;
  /** At /run/secrets/tokenhouse. */
  readonly secrets?: string;
  /** Of this computer; a network of its own when left out. */
  readonly isOnNetwork?: boolean;
}

const running = new Set<Container>();
const withoutRights = (variables: readonly string[]): readonly string[] => [
  ...['setpriv', `--reuid=${user}`, `--regid=${user}`, '--clear-groups', '--no-new-privs'],
  ...['--bounding-set=-all', '--inh-caps=-all', 'env', '-i', ...variables],
];

/** As `docker run --read-only --tmpfs /tmp --cap-drop ALL --volume data:/data` does. */
function open({ words, environment, data: volume, secrets = '', isOnNetwork = false }: Start): Container {
  const mounts = `${isOnNetwork ? ':' : 'ip link set lo up'} && mount --bind "$0" "$0" && mount -t proc proc "$0/proc" &&
    mount --bind "$1" "$0/data" && mount -t tmpfs tmpfs "$0/tmp" && mount -t tmpfs tmpfs "$0/run" &&
    if [ -n "$2" ]; then mkdir -p "$0/run/secrets/tokenhouse" && mount --bind "$2" "$0/run/secrets/tokenhouse"; fi &&
    mount -o remount,ro "$0/run" && mount -o remount,ro,bind "$0" && shift 2 && exec chroot "$0" "$@"`;
  const variables = Object.entries({ PATH: path, ...environment }).map(([name, value]) => `${name}=${value}`);
  const inside = [...withoutRights(variables), 'sh', '-c', 'cd /data && exec "$@"', 'sh', ...words];
  const own = isOnNetwork ? ['--mount'] : ['--mount', '--net'];
  const child = spawn('unshare', [...own, 'sh', '-c', mounts, rootOf('plain'), volume, secrets, ...inside], {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  const container: Container = { process: child, variables, said: '' };
  running.add(container);
  child.stderr.on('data', (text: Buffer) => (container.said += text.toString()));
  return container;
}

async function start(options: Start): Promise<Container> {
  const container = open(options);
  await until(() => {
    assert.equal(container.process.exitCode, null, container.said);
    return /^ready in /m.test(container.said);
  }, 120_000);
  return container;
}

/** As `docker exec`. */
const within = ({ process: { pid }, variables }: Container, ...words: readonly string[]): Promise<Ran> =>
  run('nsenter', [
    ...['--target', String(pid), '--mount', '--net', '--root', '--wd'],
    ...withoutRights(variables),
    ...words,
  ]);

async function assertWithin(container: Container, ...words: readonly string[]): Promise<string> {
  const { code, said } = await within(container, ...words);
  assert.equal(code, 0, `${words.join(' ')}\n${said}`);
  return said;
}

/** How it ended by itself. */
async function ended(container: Container): Promise<number | null> {
  const { process: child } = container;
  if (child.exitCode === null && child.signalCode === null) await new Promise((resolve) => child.on('close', resolve));
  running.delete(container);
  return child.exitCode;
}

async function stop(container: Container): Promise<void> {
  container.process.kill('SIGTERM');
  assert.equal(await ended(container), 0, container.said);
}

const isCharged = async (container: Container): Promise<boolean> =>
  /smollm2-135m-instruct.*\$0\.0000\d+ {2}finished/.test(await assertWithin(container, 'tokenhouse', 'usage'));

/** A folder as the container's user finds its volume, with the default model: its download is the network's time and not ours. */
async function volumeWithModel(name: string): Promise<string> {
  const volume = join(folder, name);
  const cached =
    process.env['TOKENHOUSE_MODEL_DIR'] ??
    join(process.env['XDG_CACHE_HOME'] || join(homedir(), '.cache'), 'tokenhouse/models');
  cpSync(cached, join(volume, 'models'), {
    recursive: true,
    filter: (file) => !/\.gguf$/.test(file) || /SmolLM2-135M/.test(file),
  });
  await assertRuns('chown', ['-R', `${user}:${user}`, volume]);
  // A new volume gets the owner and the mode of the folder in the image.
  const { uid, mode } = statSync(join(rootOf('plain'), 'data'));
  assert.deepEqual([uid, mode & 0o777], [user, 0o700]);
  chmodSync(volume, 0o700);
  return volume;
}

const megabytes = (of: string): number =>
  Number(/^\d+/.exec(spawnSync('du', ['-sm', '--apparent-size', of], { encoding: 'utf8' }).stdout)![0]);

before(async () => {
  await makeBase();
  const startedAt = performance.now();
  for (const stage of ['build', 'plain']) await makeStage(stage);
  console.log(`made in ${((performance.now() - startedAt) / 1000).toFixed(0)} s`);
});
after(async () => {
  for (const container of running) {
    container.process.kill('SIGKILL');
    await ended(container);
  }
  rmSync(folder, { recursive: true, force: true });
});

test('hadolint finds nothing', async () => {
  assert.equal((await assertRuns(process.env['HADOLINT']!, [dockerfile])).trim(), '');
});

test('what it adds to its base is small, and has no sources, no tools and no secrets', () => {
  const added = join(rootOf('plain'), 'opt/tokenhouse');
  console.log(`${megabytes(added)} MB in /opt/tokenhouse, ${megabytes(rootOf('plain'))} MB with this base`);
  assert.ok(megabytes(added) <= 130);
  for (const name of ['src', 'tests', 'docs', '.git', 'data', 'tokenhouse.yaml'])
    assert.ok(!existsSync(join(added, name)), name);
});

test('it starts on a read-only root as its user without rights, and gives a real answer that is charged', async () => {
  const options: Start = {
    words: [...wordsOf(plain, 'ENTRYPOINT'), ...wordsOf(plain, 'CMD')],
    environment: environmentOf(plain),
    data: await volumeWithModel('volume'),
  };
  const startedAt = performance.now();
  let container = await start(options);
  assert.match(await assertWithin(container, 'tokenhouse', 'keys', 'create', '--name', 'first'), /tkh_[0-9A-Za-z]+/);
  assert.match(await assertWithin(container, 'tokenhouse', 'chat', 'What is the capital of France?'), /Paris/);
  console.log(`a key and the first answer after ${((performance.now() - startedAt) / 1000).toFixed(1)} s`);
  await until(() => isCharged(container), 30_000);
  const health = plain.find((step) => step.startsWith('HEALTHCHECK '))!;
  await assertWithin(container, ...(JSON.parse(health.slice(health.indexOf('['))) as readonly string[]));
  const page = `fetch('http://127.0.0.1:8081/docs').then((answer) => answer.text()).then(console.log)`;
  assert.match(await assertWithin(container, 'node', '-e', page), /<h1 id="documentation">/);
  assert.equal((await assertWithin(container, 'id', '-u')).trim(), String(user));
  const status = await assertWithin(container, 'cat', `/proc/${container.process.pid}/status`);
  assert.match(status, /^CapEff:\t0{16}$/m);
  assert.match(status, /^NoNewPrivs:\t1$/m);
  for (const place of ['/opt/tokenhouse/x', '/etc/x', '/x', '/run/x'])
    assert.match((await within(container, 'touch', place)).said, /Read-only file system|Permission denied/);
  await stop(container);
  const files = ['tokenhouse.db', 'secret'].map((name) => statSync(join(options.data, name)));
  for (const { uid, mode } of files) assert.deepEqual([uid, mode & 0o077], [user, 0]);

  // Another container goes on with the volume.
  container = await start(options);
  assert.ok(await isCharged(container));
  await stop(container);
});

test('as the pods of the chart it makes the tables, and two replicas share them and the charges', async (t) => {
  const server = await PostgresServer.start({ fsync: 'off' });
  t.after(() => server.dispose());
  const url = await server.createDatabase();
  const secrets = join(folder, 'secrets');
  mkdirSync(secrets);
  for (const name of ['postgres_password', 'secret', 'metrics_token'])
    writeFileSync(join(secrets, name), 'a'.repeat(64), { mode: 0o644 });
  const manifests = parseAllDocuments(
    readFileSync(inRepository('deploy', 'helm', 'tokenhouse', 'golden', 'plain.yaml'), 'utf8'),
  ).map((one) => one.toJS() as Manifest);
  /** The pod's own command and variables; the database and the ports are those of this computer. */
  const podOf = async (kind: string, name: string, ports: readonly number[]): Promise<Start> => {
    const [container] = manifests.find((one) => one.kind === kind)!.spec!.template!.spec.containers;
    const given = Object.fromEntries(container!.env.map((one) => [one.name, one.value]));
    const address = Object.keys(given).filter((one) => given[one]!.startsWith('postgres://'));
    assert.equal(address.length, 1);
    const volume = await volumeWithModel(name);
    // Of its configuration nothing is left but the default model, because there is no vLLM here.
    writeFileSync(join(volume, 'tokenhouse.yaml'), '{}\n');
    return {
      words: [...wordsOf(plain, 'ENTRYPOINT'), ...container!.args],
      environment: {
        ...environmentOf(plain),
        ...given,
        [address[0]!]: url,
        TOKENHOUSE_SERVER__INFERENCE__PORT: String(ports[0]),
        TOKENHOUSE_SERVER__ACCOUNT__PORT: String(ports[1]),
      },
      data: volume,
      secrets,
      isOnNetwork: true,
    };
  };
  const ports = [await freePort(), await freePort(), await freePort(), await freePort()];
  const migration = open(await podOf('Job', 'job', ports));
  assert.equal(await ended(migration), 0, migration.said);
  const first = await start(await podOf('Deployment', 'first', ports));
  const second = await start(await podOf('Deployment', 'second', ports.slice(2)));
  const key = /tkh_[0-9A-Za-z]+/.exec(await assertWithin(first, 'tokenhouse', 'keys', 'create', '--name', 'pods'))![0];
  for (const port of [ports[0], ports[2]]) {
    assert.equal((await fetch(`http://127.0.0.1:${port}/readyz`)).status, 200);
    const answer = await fetch(`http://127.0.0.1:${port}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify({
        model: 'smollm2-135m-instruct',
        messages: [{ role: 'user', content: 'What is the capital of France?' }],
      }),
    });
    const text = await answer.text();
    assert.equal(answer.status, 200, text);
    assert.match(text, /Paris/);
  }
  await until(
    async () => (await assertWithin(first, 'tokenhouse', 'usage')).match(/\$0\.0000\d+ {2}finished/g)?.length === 2,
    30_000,
  );
  await assertWithin(second, 'tokenhouse', 'ledger', 'verify');
  for (const replica of [first, second]) await stop(replica);
});

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
