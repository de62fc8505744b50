import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { freePort } from './contender.ts';
import type { Processes } from './processes.ts';

/** The program upstream.c while it runs. */
export interface Upstream {
  readonly port: number;
  stats(): Promise<UpstreamStats>;
  /** Waits until no stream runs, for a second at most. */
  whenQuiet(): Promise<UpstreamStats>;
}

export interface UpstreamStats {
  readonly streams: number;
  readonly finished: number;
  readonly aborted: number;
  readonly running: number;
}

const startTimeoutMs = 5_000;
const quietTimeoutMs = 1_000;

export interface UpstreamOptions {
  readonly program: string;
  readonly core: number | undefined;
  /** `undefined`: any free one. */
  readonly port: number | undefined;
  readonly folder: string;
}

export async function startUpstream(processes: Processes, options: UpstreamOptions): Promise<Upstream> {
  const port = options.port ?? (await freePort());
  const logFile = join(options.folder, 'upstream.log');
  const running = processes.start({
    command: [options.program, String(port)],
    core: options.core,
    cwd: options.folder,
    logFile,
  });
  const stats = async (): Promise<UpstreamStats> =>
    (await (await fetch(`http://127.0.0.1:${port}/stats`)).json()) as UpstreamStats;
  const deadlineMs = performance.now() + startTimeoutMs;
  for (;;) {
    const end = running.ended();
    if (end !== undefined) throw new Error(`the upstream ${end}; is port ${port} taken?`);
    try {
      await stats();
      break;
    } catch (error) {
      if (performance.now() > deadlineMs) throw error;
      await sleep(10);
    }
  }
  return {
    port,
    stats,
    whenQuiet: async () => {
      const quietDeadlineMs = performance.now() + quietTimeoutMs;
      let now = await stats();
      while (now.running > 0 && performance.now() < quietDeadlineMs) {
        await sleep(10);
        now = await stats();
      }
      return now;
    },
  };
}
