import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { freePort, type Contender } from './contender.ts';
import { nginx } from './nginx.ts';
import { forOneCore } from './tokenhouse.ts';

/** What we are compared with: the ratios of the table are to these. */
export const comparedWith = ['smg', 'prototype'] as const;

const key = 'sk-bench-0000000000000000000000000000000000000042';

export interface PeersOptions {
  readonly root: string;
  readonly say: (line: string) => void;
  /** false: nginx alone, the control that every run has. */
  readonly isAll: boolean;
  /** The names that are wanted; undefined: all. */
  readonly only: readonly string[] | undefined;
  /** The program of Node. */
  readonly node: string;
}

/** What others make of the same task. Each program is installed once, among the caches; one that cannot be is left out, and said. */
export async function peers({ root, say, isAll, only, node }: PeersOptions): Promise<readonly Contender[]> {
  const programs = (await import(pathToFileURL(join(root, 'scripts', 'peers.mjs')).href)) as {
    nginxProgram(): string;
    smgProgram(): string;
    bifrostProgram(): string;
  };
  const found = (name: string, program: () => string, contender: (program: string) => Contender): Contender[] => {
    if (only !== undefined && !only.includes(name)) return [];
    try {
      return [contender(program())];
    } catch (error) {
      say(`${name} is left out: ${(error as Error).message}`);
      return [];
    }
  };
  const control = found('nginx', programs.nginxProgram, nginx);
  if (!isAll) return control;
  return [
    ...control,
    prototype(node),
    ...found('smg', programs.smgProgram, smg),
    ...found('bifrost-core', programs.bifrostProgram, bifrost),
  ];
}

/** A gateway on node:http without money (prototype-process.ts), with Node's options that we get. */
const prototype = (node: string): Contender => ({
  name: 'prototype',
  prepare: async (_folder, upstreamPort) => {
    const port = await freePort();
    const program = fileURLToPath(new URL('./prototype-process.js', import.meta.url));
    const command = [node, ...forOneCore, program, String(port), String(upstreamPort), key, 'bench'];
    return { command, port, key, model: 'bench' };
  },
});

/**
 * The router of the SGLang project, the successor of sglang-router: one key, no state of it. It passes answers on as they are, and asks
 * for the model by the name that the upstream lists.
 */
const smg = (program: string): Contender => ({
  name: 'smg',
  prepare: async (_folder, upstreamPort) => {
    const [port, metricsPort] = [await freePort(), await freePort()];
    const command = [
      ...[program, 'launch', '--backend', 'openai', '--worker-urls', `http://127.0.0.1:${upstreamPort}`],
      ...['--host', '127.0.0.1', '--port', String(port), '--api-key', key, '--log-level', 'warn'],
      ...['--prometheus-host', '127.0.0.1', '--prometheus-port', String(metricsPort)],
    ];
    return { command, port, key, model: 'bench' };
  },
});

const bifrost = (program: string): Contender => ({
  name: 'bifrost-core',
  prepare: async (_folder, upstreamPort) => {
    const port = await freePort();
    return { command: [program, String(port), String(upstreamPort), key], port, key, model: 'bench' };
  },
});
