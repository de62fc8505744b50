import { createHash } from 'node:crypto';
import path from 'node:path';
import type { ModelConfig, OpenAiBackendConfig } from '../config/config.ts';
import { identityOf } from '../config/identity.ts';
import { portMark } from '../config/sections/managed.ts';
import { managedUrl } from '../config/sections/backends.ts';
import type { Environment } from '../config/environment.ts';
import type { Engine } from '../inference/engines/engine.ts';
import { gpuVariablesIn } from '../inference/engines/llama/gpu-variables.ts';
import { FreePorts } from '../inference/engines/managed/free-port.ts';
import { GpuRooms } from '../inference/engines/managed/gpu-rooms.ts';
import { ManagedEngine } from '../inference/engines/managed/managed-engine.ts';
import { ManagedServer, type ServerEvent } from '../inference/engines/managed/managed-server.ts';
import { ownedProcess, type Running } from '../inference/engines/managed/owned-processes.ts';
import { ServerShare } from '../inference/engines/managed/server-share.ts';
import type { Log } from '../platform/log.ts';
import { lookAtBackend, reportLook } from './look.ts';

/** What the servers that the service starts have in common. */
export interface ManagedServices {
  readonly rooms: GpuRooms;
  readonly ports: FreePorts;
  /** Has a file for each server that runs, and one for what each was seen to hold. */
  readonly folder: string;
  readonly running: Running;
  /** By all that a process of it is started with. */
  readonly servers: Map<string, ManagedServer>;
}

export const managedServices = (dataFolder: string): ManagedServices => ({
  rooms: new GpuRooms(),
  ports: new FreePorts(),
  folder: path.join(dataFolder, 'servers'),
  running: new Map(),
  servers: new Map(),
});

type Managed = NonNullable<OpenAiBackendConfig['managed']>;
interface Services {
  readonly environment: Environment;
  readonly log: Log;
  readonly servers: ManagedServices;
}

/** The engine of a backend whose server the service starts. `open`: that of a server at a URL. An adapter has the server of its base. */
export function managedEngineOf(
  model: ModelConfig,
  config: OpenAiBackendConfig,
  managed: Managed,
  open: (url: string) => Engine,
  services: Services,
): Engine {
  const { servers } = services.servers;
  const base = model.adapterOf ?? model.id;
  const { flavor, name, zdr, loadAdapters } = config;
  const key = identityOf([base, name, flavor, zdr, loadAdapters !== undefined, managed]);
  let server = servers.get(key);
  if (server === undefined) {
    server = managedServer({ model, base, config, managed, key, ...services });
    servers.set(key, server);
  }
  return new ManagedEngine({
    name: model.id,
    open: (port) => open(urlAt(port)),
    managed: server,
    startTimeoutMs: managed.startTimeoutMs,
    tells: model.adapterOf === undefined,
  });
}

const urlAt = (port: number): string => managedUrl.replace(':1/', `:${port}/`);

function managedServer({
  model,
  base,
  config,
  managed,
  key,
  environment,
  log,
  servers: { rooms, ports, folder, running, servers },
}: Services & {
  readonly model: ModelConfig;
  readonly base: string;
  readonly config: OpenAiBackendConfig;
  readonly managed: Managed;
  readonly key: string;
}): ManagedServer {
  const passed = {
    ...variablesFor(environment.childVariables),
    ...(config.loadAdapters === undefined ? {} : { VLLM_ALLOW_RUNTIME_LORA_UPDATING: 'True' }),
  };
  const hashOf = (text: string): string => createHash('sha256').update(text).digest('hex').slice(0, 32);
  const file = path.join(folder, hashOf(`${base}\n${config.name}`));
  return new ManagedServer({
    command: (port) => {
      const at = (word: string): string => word.replaceAll(portMark, String(port));
      const variables = managed.variables.map(({ name, value }) => [name, at(value.reveal())] as const);
      return {
        command: managed.command.map(at),
        variables: { ...passed, ...Object.fromEntries(variables) },
        directory: managed.directory,
      };
    },
    healthPath: pagesOf[config.flavor] ?? '/v1/models',
    ports,
    rooms,
    share: new ServerShare({ ...managed, file: `${file}.memory`, commandHash: hashOf(managed.command.join('\n')) }),
    owned: ownedProcess(file, running),
    startsAtOnce: managed.start === 'at_start',
    startTimeoutMs: managed.startTimeoutMs,
    idleMs: managed.idleMs,
    sleeps: managed.sleep,
    keepsOutput: !config.zdr,
    onClosed: () => servers.delete(key),
    onEvent: (event) => {
      log.service({
        level: event.event === 'failed' ? 'error' : warnings.has(event.event) ? 'warn' : 'info',
        event: `server_${event.event}`,
        detail: detailOf(base, config.name, event),
      });
      if (event.event === 'ready')
        void lookAtBackend(model, { ...config, url: urlAt(event.port) }).then((look) => reportLook(look, log));
    },
  });
}

const warnings: ReadonlySet<ServerEvent['event']> = new Set(['silent', 'exceeds_share']);

/** Where a server of this kind says that its model is loaded; the others list their models. */
const pagesOf: Partial<Record<OpenAiBackendConfig['flavor'], string>> = {
  vllm: '/health',
  sglang: '/health',
  'llama-server': '/health',
  tgi: '/health',
  tei: '/health',
};

function detailOf(model: string, backend: string, event: ServerEvent): Record<string, string | number | null> {
  const { event: _, pid, ...others } = event;
  return { model, backend, pid: pid ?? null, ...others };
}

/** Besides those of GPUs: where programs are, where they keep what they fetch, and in which language they write. */
const names: ReadonlySet<string> = new Set([
  ...['HOME', 'USER', 'LOGNAME', 'SHELL', 'TMPDIR', 'TZ', 'LANG', 'LC_ALL', 'LC_CTYPE', 'VIRTUAL_ENV'],
  ...[
    'XDG_CACHE_HOME',
    'XDG_CONFIG_HOME',
    'XDG_RUNTIME_DIR',
    'HF_HOME',
    'HF_HUB_CACHE',
    'HF_ENDPOINT',
    'HF_HUB_OFFLINE',
  ],
  ...['CUDA_HOME', 'ROCM_PATH', 'HIP_VISIBLE_DEVICES', 'ROCR_VISIBLE_DEVICES', 'SSL_CERT_FILE', 'SSL_CERT_DIR'],
]);

const variablesFor = (variables: Readonly<Record<string, string>>): Readonly<Record<string, string>> => ({
  ...gpuVariablesIn(variables),
  ...Object.fromEntries(Object.entries(variables).filter(([name]) => names.has(name))),
});
