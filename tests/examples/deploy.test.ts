/**
 * What `deploy/` says of the program is so: variables, settings, commands, ports, health routes and folders. The program itself reads
 * the configurations. Nothing here starts a container or systemd: the suites `image` and `deb` do.
 */
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';

import type { Command } from 'commander';
import { parse, parseAllDocuments, stringify } from 'yaml';

import { commandProgram } from '../../src/cli/command-line.ts';
import { readContext } from '../../src/cli/read-context.ts';
import type { Config } from '../../src/config/config.ts';
import { plainOperations } from '../../src/inference/openapi/plain-operations.ts';
import { temporaryFolder } from '../store/fixture.ts';
import { environmentOf, isIgnored, stagesOf, wordsOf } from '../support/dockerfile.ts';
import { inRepository } from '../support/repository.ts';

const read = (file: string): string => readFileSync(inRepository('deploy', file), 'utf8');

/** The configuration that the program has with these variables, in a folder without a file. `TOKENHOUSE_…` of this process do not count. */
function configOf(folder: string, variables: Readonly<Record<string, string>>, file?: string): Config {
  if (file !== undefined) writeFileSync(join(folder, 'tokenhouse.yaml'), file);
  return readContext(undefined, folder, { HOME: folder, ...variables }).config;
}

/** Fails for a command or an option that the program does not have. */
function assertCommand([...words]: readonly string[]): void {
  let command: Command = commandProgram();
  for (let next = command.commands.find((one) => one.name() === words[0]); next !== undefined && words.length > 0;) {
    command = next;
    words.shift();
    next = command.commands.find((one) => one.name() === words[0]);
  }
  assert.notEqual(command.parent, null, `no command ${words[0]}`);
  const options = words.filter((word) => word.startsWith('--'));
  for (const option of options)
    assert.ok(
      command.options.some(({ long }) => long === option),
      `no option ${option}`,
    );
  if (options.length === 0 && command.registeredArguments.length === 0) assert.deepEqual(words, [], 'no such command');
}

const healthRoutes = plainOperations.map(({ path }) => path).filter((path) => /z$/.test(path));
const ports = ({ server }: Config): readonly number[] => [server.inference.port, server.account.port];

test('the check of commands finds those that are not there', () => {
  assertCommand(['db', 'migrate']);
  assertCommand(['keys', 'create', '--name', 'first']);
  for (const words of [['sreve'], ['serve', '--no-keys'], ['db', 'mirgate']])
    assert.throws(() => assertCommand(words), /no (such )?(command|option)/, words.join(' '));
  assert.deepEqual(healthRoutes.toSorted(), ['/healthz', '/readyz']);
});

describe('Dockerfile', () => {
  const stages = stagesOf(read('Dockerfile'));
  const plain = stages.get('plain')!;
  const arrayOf = (instruction: string): readonly string[] => wordsOf(plain, instruction);
  const env = environmentOf(plain);

  test('its variables make a service that is reached from outside and keeps its data in the volume', (t) => {
    const config = configOf(temporaryFolder(t), env);
    assert.equal(config.server.inference.host, '0.0.0.0');
    assert.equal(config.server.account.host, '0.0.0.0');
    assert.deepEqual(config.storage, { type: 'sqlite', path: '/data/tokenhouse.db', directory: '/data' });
    assert.ok(plain.includes('VOLUME /data') && plain.includes('WORKDIR /data'));
    assert.ok(plain.includes(`EXPOSE ${ports(config).join(' ')}`));
    const health = plain.find((step) => step.startsWith('HEALTHCHECK '))!;
    const [, port, path] = /http:\/\/127\.0\.0\.1:(\d+)(\/\w+)/.exec(health) ?? [];
    assert.equal(Number(port), config.server.inference.port);
    assert.ok(healthRoutes.includes(path!), path);
  });

  test('it runs the program that the build writes, as a user without rights', () => {
    assert.deepEqual(arrayOf('ENTRYPOINT'), ['node', '/opt/tokenhouse/dist/main.js']);
    assertCommand(arrayOf('CMD'));
    assertCommand(
      /dist\/main\.js (.*)$/.exec(stages.get('fetch-model')!.find((step) => step.startsWith('RUN '))!)![1]!.split(' '),
    );
    const build = stages.get('build')!;
    assert.ok(build.includes('WORKDIR /opt/tokenhouse') && build.includes('RUN npm run build'));
    for (const folder of ['dist', 'node_modules'])
      assert.ok(plain.includes(`COPY --from=build /opt/tokenhouse/${folder} /opt/tokenhouse/${folder}`), folder);
    assert.match(
      plain.find((step) => step.startsWith('USER '))!,
      /^USER [1-9]\d*$/,
    );
    for (const [from] of stages.values())
      assert.match(from!, /^FROM (docker\.io\/library\/node:24|docker\.io\/library\/node:24-slim|build|plain) AS /);
    assert.doesNotMatch(plain.join('\n'), /COPY \. /, 'the sources stay in the other stage');
  });

  test('what it copies leaves out secrets, the ledger and what belongs to the machine', () => {
    const left = readFileSync(inRepository('.dockerignore'), 'utf8').split('\n');
    const patterns = ['data/', '**/secret', '**/secrets/', '**/*.db', '.env*', 'tokenhouse.yaml', 'node_modules/'];
    for (const pattern of [...patterns, '**/node_modules/', 'dist/', '.git/'])
      assert.ok(left.includes(pattern), pattern);
    assert.ok(!left.some((pattern) => pattern.startsWith('!')), 'nothing is let in again');
    for (const path of [
      'data/secret',
      'a/b/secret',
      'x.db',
      'a/tokenhouse.db-wal',
      '.env.local',
      'web/node_modules/a/b.js',
    ])
      assert.ok(isIgnored(path, left.join('\n')), path);
    for (const path of [
      'src/data/a.ts',
      'docs/secret.md',
      'src/store/database.ts',
      'deploy/Dockerfile',
      'package.json',
    ])
      assert.ok(!isIgnored(path, left.join('\n')), path);
    // The documentation links to them, and a dead link fails its build.
    for (const folder of ['docs', 'bench', 'tests', 'deploy', 'web']) assert.ok(!left.includes(`${folder}/`), folder);
  });
});

interface ComposeService {
  readonly image: string;
  readonly read_only?: boolean;
  readonly init?: boolean;
  readonly cap_drop?: readonly string[];
  readonly stop_grace_period?: string;
  readonly ports?: readonly string[];
  readonly volumes?: readonly string[];
  readonly tmpfs?: readonly string[];
  readonly secrets?: readonly string[];
  readonly environment?: Readonly<Record<string, string>>;
  readonly build?: { readonly context: string; readonly dockerfile: string; readonly target: string };
  readonly networks?: { readonly default: { readonly ipv4_address: string } };
}
interface Compose {
  readonly services: Readonly<Record<string, ComposeService>>;
  readonly volumes?: object;
  readonly secrets?: object;
}

describe('compose', () => {
  const composes = readdirSync(inRepository('deploy', 'compose'))
    .filter((name) => name.endsWith('.yaml'))
    .map((name) => ({ name, text: read(`compose/${name}`), compose: parse(read(`compose/${name}`)) as Compose }));
  const ours = composes.flatMap(({ name, compose }) =>
    Object.entries(compose.services)
      .filter(([, { build }]) => build !== undefined)
      .map(([service, settings]) => ({ where: `${name} ${service}`, compose, settings })),
  );

  for (const { where, compose, settings } of ours)
    test(`${where} is a service that the program starts, and harmless`, (t) => {
      const folder = temporaryFolder(t);
      mkdirSync(join(folder, 'secrets'));
      for (const name of settings.secrets ?? []) {
        assert.ok(Object.hasOwn(compose.secrets ?? {}, name), name);
        writeFileSync(join(folder, 'secrets', name), 'a'.repeat(64));
      }
      const variables = Object.entries(settings.environment ?? {}).map(([name, value]) => [
        name,
        value
          .replace('/run/secrets', join(folder, 'secrets'))
          .replaceAll(/\$\{(\w+)\}/g, (_, variable: string) =>
            variable === 'MODEL' ? 'Qwen/Qwen3-8B' : 'a.example.org',
          ),
      ]);
      const config = configOf(folder, Object.fromEntries(variables) as Record<string, string>);
      assert.equal(settings.read_only, true);
      assert.equal(settings.init, true);
      assert.deepEqual(settings.cap_drop, ['ALL']);
      const graceSeconds = Number(/^(\d+)s$/.exec(settings.stop_grace_period ?? '')?.[1]);
      const { drainDelayMs, drainTimeoutMs } = config.server.limits;
      assert.ok(graceSeconds > (drainDelayMs + drainTimeoutMs) / 1000, 'running answers may end');
      assert.ok(JSON.stringify([settings.volumes, settings.tmpfs]).includes('/data'), '/data can be written');
      assert.ok(settings.tmpfs?.includes('/tmp'));
      assert.deepEqual(settings.build, { context: '../..', dockerfile: 'deploy/Dockerfile', target: 'plain' });
      for (const published of settings.ports ?? []) {
        assert.match(published, /^127\.0\.0\.1:/);
        assert.ok(ports(config).includes(Number(published.split(':').at(-1))), published);
      }
    });

  test('the images of others are named with their registry: Podman asks none by itself', () => {
    const others = composes.flatMap(({ compose }) => Object.values(compose.services)).filter(({ build }) => !build);
    assert.equal(others.length, 3);
    for (const { image } of others) assert.match(image, /^docker\.io\/[\w-]+\/[\w-]+:[\w.-]+$/);
  });

  test('its commands exist, and name services that are there', () => {
    for (const { text, compose } of composes)
      for (const [, service, words] of text.matchAll(/ exec (\S+) tokenhouse (.*)$/gm)) {
        assert.ok(Object.hasOwn(compose.services, service!), service);
        assertCommand(words!.split(' '));
      }
  });

  test('the proxy asks both hosts of every replica, and is the one that the replicas trust', (t) => {
    const { compose } = composes.find(({ name }) => name === 'replicas.yaml')!;
    const replicas = ours
      .filter(({ where }) => where.startsWith('replicas.yaml '))
      .map(({ where }) => where.split(' ')[1]!);
    const caddy = read('compose/Caddyfile');
    const config = configOf(temporaryFolder(t), {});
    const upstreams = [...caddy.matchAll(/reverse_proxy (.*) \{/g)].map(([, list]) => list!.split(' '));
    assert.deepEqual(
      upstreams,
      ports(config).map((port) => replicas.map((replica) => `${replica}:${port}`)),
    );
    assert.ok(healthRoutes.includes(/health_uri (\S+)/.exec(caddy)![1]!));
    const lookSeconds = Number(/health_interval (\d+)s/.exec(caddy)![1]);
    for (const replica of replicas)
      assert.ok(
        Number(compose.services[replica]!.environment!['TOKENHOUSE_SERVER__LIMITS__DRAIN_DELAY_SECONDS']) > lookSeconds,
        'it closes only when the proxy has seen that it is not ready',
      );
    assert.match(caddy, /header_up X-Forwarded-For \{remote_host\}/);
    const address = compose.services['caddy']!.networks!.default.ipv4_address;
    for (const replica of replicas)
      assert.equal(compose.services[replica]!.environment!['TOKENHOUSE_SERVER__TRUSTED_PROXIES'], address);
    for (const name of Object.keys(compose.services['caddy']!.environment!))
      assert.ok(caddy.includes(`{$${name}}`), name);
  });
});

describe('tokenhouse.service', () => {
  const unit = read('systemd/tokenhouse.service');
  const valuesOf = (name: string): readonly string[] =>
    [...unit.matchAll(new RegExp(`^${name}=(.*)$`, 'gm'))].map(([, value]) => value!);

  test('starts the program with a configuration that the page writes, in folders that it may write to', (t) => {
    const [, path, command] = /^\/usr\/bin\/node (\S+) (.*)$/.exec(valuesOf('ExecStart')[0]!)!;
    assert.equal(path, '/opt/tokenhouse/dist/main.js');
    assertCommand(command!.split(' '));
    const page = readFileSync(inRepository('docs/install.md'), 'utf8');
    const [, source, file] = /\bcp deploy\/(systemd\/tokenhouse\.yaml) (\S+\/)$/m.exec(page)!;
    const variables = Object.fromEntries(valuesOf('Environment').map((pair) => pair.split('=') as [string, string]));
    assert.equal(variables['TOKENHOUSE_CONFIG'], `${file}tokenhouse.yaml`);
    const folder = temporaryFolder(t);
    const config = configOf(
      folder,
      { ...variables, TOKENHOUSE_CONFIG: join(folder, 'tokenhouse.yaml') },
      read(source!),
    );
    const directory = `/var/lib/${valuesOf('StateDirectory')[0]}`;
    assert.deepEqual(config.storage, { type: 'sqlite', path: `${directory}/tokenhouse.db`, directory });
    assert.ok(variables['TOKENHOUSE_MODEL_DIR']!.startsWith(`/var/cache/${valuesOf('CacheDirectory')[0]}/`));
    assert.ok(Number(valuesOf('TimeoutStopSec')[0]) > config.server.limits.drainTimeoutMs / 1000);
    // Else systemd stops llama.cpp's process too, and with it the answers that run.
    assert.deepEqual(valuesOf('KillMode'), ['mixed']);
  });

  test('is not started again after the exit codes that another start would end with too', () => {
    const codes = valuesOf('RestartPreventExitStatus')[0]!.split(' ');
    const page = readFileSync(inRepository('docs/cli.md'), 'utf8');
    for (const code of codes) assert.match(page, new RegExp(`^\\| ${code} \\| (wrong usage|the configuration)`, 'm'));
  });
});

interface Pod {
  readonly automountServiceAccountToken: boolean;
  readonly securityContext: object;
  readonly terminationGracePeriodSeconds?: number;
  readonly containers: readonly {
    readonly args: readonly string[];
    readonly env: readonly { readonly name: string; readonly value: string }[];
    readonly securityContext: object;
    readonly ports?: readonly { readonly containerPort: number }[];
    readonly volumeMounts: readonly { readonly name: string; readonly mountPath: string }[];
    readonly [probe: string]: unknown;
  }[];
}
interface Manifest {
  readonly kind: string;
  readonly data?: Readonly<Record<string, string>>;
  readonly spec?: { readonly template?: { readonly spec: Pod } };
}

describe('the Helm chart, as it is rendered in golden/', () => {
  const golden = inRepository('deploy', 'helm', 'tokenhouse', 'golden');
  const rendered = readdirSync(golden)
    .filter((name) => /^[^.]+\.yaml$/.test(name))
    .map((name) => ({
      name,
      manifests: parseAllDocuments(readFileSync(join(golden, name), 'utf8')).map((one) => one.toJS() as Manifest),
    }));

  /** The configuration that a pod has, with secrets in the place of those that the cluster has. */
  function podConfig(folder: string, pod: Pod, file: string): Config {
    mkdirSync(join(folder, 'secrets'));
    for (const name of ['postgres_password', 'secret', 'metrics_token'])
      writeFileSync(join(folder, 'secrets', name), 'a'.repeat(64));
    writeFileSync(join(folder, 'tokenhouse.yaml'), file);
    const variables = pod.containers[0]!.env.map(({ name, value }) => [
      name,
      value.replace('/run/secrets/tokenhouse', join(folder, 'secrets')),
    ]);
    // From a secret of the cluster.
    return configOf(folder, { VLLM_KEY: 'k', ...(Object.fromEntries(variables) as Record<string, string>) });
  }

  for (const { name, manifests } of rendered) {
    const podOf = (kind: string): Pod => manifests.find((one) => one.kind === kind)!.spec!.template!.spec;
    const file = manifests.find(({ kind }) => kind === 'ConfigMap')!.data!['tokenhouse.yaml']!;

    test(`${name}: the program takes its configuration, and its commands, ports and routes exist`, (t) => {
      const pod = podOf('Deployment');
      const [container] = pod.containers;
      const config = podConfig(temporaryFolder(t), pod, file);
      assert.equal(config.storage.type, 'postgres');
      const mounted = container!.volumeMounts.find((mount) => mount.name === 'config')!.mountPath;
      const [, folder] = /^WORKDIR (.*)$/m.exec(read('Dockerfile').split(' AS plain')[1]!)!;
      assert.equal(mounted, `${folder}/tokenhouse.yaml`, 'where the image starts, in a folder that can be written');
      assert.deepEqual(
        container!.ports!.map(({ containerPort }) => containerPort),
        ports(config),
      );
      assert.ok(pod.terminationGracePeriodSeconds! > config.server.limits.drainTimeoutMs / 1000 + 5);
      assertCommand(container!.args);
      for (const probe of ['startupProbe', 'livenessProbe', 'readinessProbe']) {
        const { httpGet } = container![probe] as { readonly httpGet: { readonly path: string } };
        assert.ok(healthRoutes.includes(httpGet.path), probe);
      }
    });

    test(`${name}: the tables are made with the same database and secret, by a command that exists`, (t) => {
      const pod = podOf('Job');
      assertCommand(pod.containers[0]!.args);
      const [ofJob, ofReplica] = [pod, podOf('Deployment')].map((one) => {
        const { storage } = podConfig(temporaryFolder(t), one, file);
        assert.ok(storage.type === 'postgres');
        return [storage.url.reveal(), storage.password?.reveal()];
      });
      assert.deepEqual(ofJob, ofReplica);
    });

    test(`${name}: its containers have no rights, and write to /data and /tmp alone`, () => {
      for (const pod of [podOf('Deployment'), podOf('Job')]) {
        const [container] = pod.containers;
        assert.equal(pod.automountServiceAccountToken, false);
        assert.match(JSON.stringify(pod.securityContext), /"runAsNonRoot":true,"runAsUser":1000/);
        assert.deepEqual(container!.securityContext, {
          allowPrivilegeEscalation: false,
          readOnlyRootFilesystem: true,
          capabilities: { drop: ['ALL'] },
        });
        const written = container!.volumeMounts
          .filter((mount) => !('readOnly' in mount))
          .map(({ mountPath }) => mountPath);
        assert.deepEqual(written, ['/data', '/tmp']);
      }
    });
  }

  test('the values of the quickstart are those that it has, and the program takes their configuration', (t) => {
    const page = readFileSync(inRepository('docs/quickstart-kubernetes.md'), 'utf8');
    const [, block] = /```yaml\n([^]*?)```/.exec(page)!;
    const values = parse(block!) as Record<string, object>;
    const known = parse(read('helm/tokenhouse/values.yaml')) as Record<string, object>;
    for (const [name, value] of Object.entries(values)) {
      assert.ok(name in known, name);
      if (name !== 'config')
        for (const inner of Object.keys(value)) assert.ok(inner in known[name]!, `${name}.${inner}`);
    }
    const { manifests } = rendered.find(({ name }) => name === 'plain.yaml')!;
    const pod = manifests.find(({ kind }) => kind === 'Deployment')!.spec!.template!.spec;
    const config = podConfig(temporaryFolder(t), pod, stringify(values['config']));
    assert.deepEqual(
      config.models.map(({ id }) => id),
      ['qwen3-8b'],
    );
    // What the commands say of the secret is what the chart reads.
    const secret = new Set([...page.matchAll(/--from-literal=(\w+)=/g)].map(([, name]) => name!));
    for (const { value } of pod.containers[0]!.env) {
      const [, name] = /^\/run\/secrets\/tokenhouse\/(\w+)$/.exec(value) ?? [];
      if (name !== undefined) assert.ok(secret.delete(name), name);
    }
    assert.deepEqual([...secret], []);
  });

  test('scales by a metric that exists', () => {
    const metrics = readFileSync(inRepository('docs/metrics.md'), 'utf8');
    const [metric] = /tokenhouse_\w+/.exec(
      JSON.stringify(rendered.flatMap(({ manifests }) => manifests).find(({ kind }) => kind === 'ScaledObject')),
    )!;
    assert.ok(metrics.includes(`\`${metric}\``), metric);
  });
});

describe('publish.yml', () => {
  const workflow = parse(readFileSync(inRepository('.github/workflows/publish.yml'), 'utf8')) as {
    permissions: object;
    jobs: Record<string, { permissions: object; steps: { run?: string; uses?: string }[] }>;
  };
  const steps = workflow.jobs['npm']!.steps;
  const commands = steps.flatMap(({ run }) => run ?? []).join('\n');

  test('sends the archives with provenance after the suite has tried them', () => {
    const names = [...commands.matchAll(/npm run ([\w-]+ [\w-]+)/g)].map(([, name]) => name!);
    assert.deepEqual(names, ['suite package', 'build package', 'build deb']);
    for (const [line] of commands.matchAll(/npm publish.*/g)) assert.match(line, /--provenance --access public$/);
    assert.ok(commands.lastIndexOf('npm run') < commands.indexOf('npm publish'));
  });

  test('has no more rights than it uses, and no token of the registry', () => {
    assert.deepEqual(workflow.permissions, {});
    assert.deepEqual(workflow.jobs['npm']!.permissions, {
      contents: 'write',
      'id-token': 'write',
      attestations: 'write',
    });
    assert.doesNotMatch(JSON.stringify(workflow), /secrets\./);
  });
});
