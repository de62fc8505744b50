import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import os from 'node:os';
import type { Contender } from './contender.ts';

/** What a reader must know of the machine to judge figures, one fact a line. */
export interface MachineOptions {
  readonly root: string;
  readonly dataFolder: string;
  readonly contenders: readonly Contender[];
  readonly isRaised: boolean;
  /** Left out: programs are on whatever core the scheduler gives them, several at once. */
  readonly isPinned?: boolean;
  /** The program of Node, if it is not the one that runs this. */
  readonly node?: string;
}

export function machineFacts({
  root,
  dataFolder,
  contenders,
  isRaised,
  isPinned,
  node = process.execPath,
}: MachineOptions): readonly string[] {
  const model = os.cpus()[0]?.model ?? 'unknown processor';
  return [
    `${os.cpus().length} cores (${model}), ${Math.round(os.totalmem() / 2 ** 30)} GiB, ${distribution()}, Linux ${os.release()}`,
    `node ${(output(node, ['--version']) ?? '').slice(1)}${contenders.some(({ name }) => name === 'nginx') ? `, ${versionOf('nginx', '-v')}` : ''}`,
    isPinned === undefined
      ? 'everything shares the cores'
      : isPinned
        ? 'the measured program on one core; load generator, upstream and driver on another'
        : 'a single core for everything: figures per second and latencies say little here',
    isRaised
      ? 'all measured programs at a raised priority'
      : 'no right to raise priorities: other work counts into latencies',
    `databases and logs on ${fileSystem(dataFolder)} (${dataFolder})`,
    `load average before the run ${os.loadavg()[0]!.toFixed(2)}`,
    `revision ${revision(root)}`,
  ];
}

/** Short, with a mark when the sources differ from it; the results are no source. */
export function revision(root: string): string {
  const commit = output('git', ['-C', root, 'rev-parse', '--short=8', 'HEAD']);
  if (commit === undefined) return 'unknown';
  const changed = output('git', ['-C', root, 'status', '--porcelain', '--', '.', ':!bench/results.md']);
  return changed === '' ? commit : `${commit}, changed`;
}

function distribution(): string {
  try {
    return /^PRETTY_NAME="?([^"\n]*)/m.exec(readFileSync('/etc/os-release', 'utf8'))?.[1] ?? 'unknown system';
  } catch {
    return 'unknown system';
  }
}

/** A durable commit costs nothing on a file system in memory: the reader has to know. */
const fileSystem = (folder: string): string => output('stat', ['-f', '-c', '%T', folder]) ?? 'an unknown file system';

const versionOf = (program: string, option: string): string =>
  (output('sh', ['-c', `${program} ${option} 2>&1`]) ?? program).replace(/^.*version: /, '');

function output(command: string, parameters: readonly string[]): string | undefined {
  try {
    return execFileSync(command, parameters, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim();
  } catch {
    return undefined;
  }
}
