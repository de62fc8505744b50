import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, renameSync } from 'node:fs';
import { tmpdir, userInfo } from 'node:os';
import { join } from 'node:path';
import { Problem } from './problem.ts';

/** The two programs in C: what stands before and behind a gateway must cost next to nothing. */
export interface Tools {
  readonly load: string;
  readonly upstream: string;
}

/** Compiles them, once for each version of their sources. */
export function compileTools(sourceFolder: string): Tools {
  return { load: compile(join(sourceFolder, 'load.c')), upstream: compile(join(sourceFolder, 'upstream.c')) };
}

function compile(source: string): string {
  const digest = createHash('sha256').update(readFileSync(source)).digest('hex').slice(0, 16);
  const folder = join(tmpdir(), `tokenhouse-bench-${userInfo().uid}`);
  const program = join(folder, digest);
  if (existsSync(program)) return program;
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const made = `${program}.${process.pid}`;
  const { error, status, stderr } = spawnSync('cc', ['-O2', '-o', made, source], { encoding: 'utf8' });
  if (error !== undefined) {
    throw new Problem(
      'The load generator is written in C, and there is no C compiler (cc).',
      'Debian, Ubuntu: apt-get install gcc libc6-dev',
    );
  }
  if (status !== 0)
    throw new Problem(`${source} does not compile:\n${stderr}`, 'Debian, Ubuntu: apt-get install gcc libc6-dev');
  renameSync(made, program);
  return program;
}
