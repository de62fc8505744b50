import { createHash } from 'node:crypto';
import path from 'node:path';
import type { ModelConfig, OpenAiBackendConfig } from '../config/config.ts';
import { portMark } from '../config/sections/managed.ts';
import { managedUrl } from '../config/sections/backends.ts';
import type { Environment } from '../config/environment.ts';
import type { Engine } from '../inference/engines/engine.ts';
import { gpuVariablesIn } from '../inference/engines/llama/gpu-variables.ts';
import { GpuRooms } from '../inference/engines/managed/gpu-rooms.ts';
import { ManagedEngine } from '../inference/engines/managed/managed-engine.ts';
import type { ServerEvent } from '../inference/engines/managed/managed-server.ts';
import { ownedProcess, type Running } from '../inference/engines/managed/owned-processes.ts';
import type { Log } from '../platform/log.ts';
import { lookAtBackend, reportLook } from './look.ts';

/** What the servers that the service starts have in common. */
export interface ManagedServices {
  readonly rooms: GpuRooms;
  /** Has a file for each server that runs. */
  readonly folder: string;
  readonly running: Running;
}

export const managedServices = (dataFolder: string): ManagedServices => ({
  rooms: new GpuRooms(),
  folder: path.join(dataFolder, 'servers'),
  running: new Map(),
});

/** The engine of a backend whose server the service starts. `open`: that of a server at a URL. */
export function managedEngineOf(
  model: ModelConfig,
  config: OpenAiBackendConfig,
  managed: NonNullable<OpenAiBackendConfig['managed']>,
  open: (url: string) => Engine,
  { environment, log, servers }: { environment: Environment; log: Log; servers: ManagedServices },
): Engine {
  const urlAt = (port: number): string => managedUrl.replace(':1/', `:${port}/`);
  const passed = variablesFor(environment.childVariables);
  const own = createHash('sha256').update(`${model.id}\n${config.name}`).digest('hex').slice(0, 32);
  return new ManagedEngine({
    name: model.id,
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
    open: (port) => open(urlAt(port)),
    rooms: servers.rooms,
    needs: managed,
    owned: ownedProcess(path.join(servers.folder, own), servers.running),
    startsAtOnce: managed.start === 'at_start',
    startTimeoutMs: managed.startTimeoutMs,
    idleMs: managed.idleMs,
    sleeps: managed.sleep,
    keepsOutput: !config.zdr,
    onEvent: (event) => {
      log.service({
        level: event.event === 'failed' ? 'error' : event.event === 'silent' ? 'warn' : 'info',
        event: `server_${event.event}`,
        detail: detailOf(model.id, config.name, event),
      });
      if (event.event === 'ready')
        void lookAtBackend(model, { ...config, url: urlAt(event.port) }).then((look) => reportLook(look, log));
    },
  });
}

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
