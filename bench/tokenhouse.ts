import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { freePort, type Contender } from './contender.ts';
import type { Processes } from './processes.ts';

const startTimeoutMs = 20_000;

/** As docs/operations.md says for one core, which is what a program has here. */
export const forOneCore = ['--no-concurrent-marking', '--no-concurrent-sweeping', '--no-parallel-scavenge'];

interface TokenhouseOptions {
  /** They stand before the program, for example to profile it. */
  readonly nodeOptions?: readonly string[];
  /** Of the model, in tokens. */
  readonly contextLength?: number;
  readonly storage?: string;
  readonly workers?: number;
  /** The program of Node. */
  readonly node?: string;
}

/** This service with everything on: keys, validation, holds, settlements in SQLite, one log line for each request. */
export function tokenhouse(
  root: string,
  processes: Processes,
  {
    nodeOptions = forOneCore,
    contextLength = 131_072,
    storage = 'sqlite:./data/tokenhouse.db',
    workers = 1,
    node = process.execPath,
  }: TokenhouseOptions = {},
): Contender {
  const main = join(root, 'dist', 'main.js');
  return {
    name: 'tokenhouse',
    prepare: async (folder, upstreamPort) => {
      const port = await freePort();
      const config = join(folder, 'tokenhouse.yaml');
      writeFileSync(config, configuration({ port, upstreamPort, contextLength, storage, workers }));
      // The first start makes the database and an account with credit; what is measured is a later one.
      const logFile = join(folder, 'first-start.log');
      const service = processes.start({
        command: [node, main, 'serve', '--config', config],
        core: undefined,
        cwd: folder,
        logFile,
      });
      try {
        const key = await createKey(main, config, port, () => service.ended());
        return {
          command: [node, ...nodeOptions, main, 'serve', '--config', config],
          port,
          key,
          model: 'bench',
        };
      } catch (error) {
        throw new Error(readFileSync(logFile, 'utf8').slice(-2_000), { cause: error });
      } finally {
        await processes.stop(service);
      }
    },
  };
}

/**
 * Asks the running service for a key, through the command line. Not before it listens: without a running service the
 * command would open the database itself, and the service would find it taken.
 */
async function createKey(main: string, config: string, port: number, ended: () => string | undefined): Promise<string> {
  const deadlineMs = performance.now() + startTimeoutMs;
  while (!(await listens(port))) {
    const end = ended();
    if (end !== undefined) throw new Error(`tokenhouse ${end} before it listened`);
    if (performance.now() > deadlineMs) throw new Error(`tokenhouse does not listen after ${startTimeoutMs / 1000} s`);
    await sleep(20);
  }
  const parameters = [main, 'keys', 'create', '--config', config, '--json'];
  const { status, stdout, stderr } = spawnSync(process.execPath, parameters, { encoding: 'utf8' });
  if (status !== 0) throw new Error(`a key could not be made: ${stderr}`);
  return (JSON.parse(stdout) as { readonly key: string }).key;
}

function listens(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    const end = (answer: boolean): void => {
      socket.destroy();
      resolve(answer);
    };
    socket.once('connect', () => end(true)).once('error', () => end(false));
  });
}

/** Prices as of a small hosted model; limits that the load does not meet. */
const configuration = ({
  port,
  upstreamPort,
  contextLength,
  storage,
  workers,
}: Required<Pick<TokenhouseOptions, 'contextLength' | 'storage' | 'workers'>> & {
  readonly port: number;
  readonly upstreamPort: number;
}): string => `
server:
  inference: { host: 127.0.0.1, port: ${port} }
  account: { host: 127.0.0.1, port: 0 }
  workers: ${workers}
  limits: { concurrency_per_account_max: 4096, requests_running_max: 4096 }
storage: ${storage}
accounts: { first_credit_cents: 100000000 }
models:
  - id: bench
    context_length: ${contextLength}
    max_output_tokens: 4096
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20, cache_read_cents_per_million: 2.5 }
    backends:
      - { engine: openai, flavor: vllm, url: "http://127.0.0.1:${upstreamPort}/v1", max_concurrency: 4096 }
`;
