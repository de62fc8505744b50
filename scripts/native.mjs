// Compiles the library of our own that is no JavaScript: `kept-threads.c`, which keeps llama.cpp's threads between steps, and `choice.c`,
// which makes short steps and chooses tokens. It takes a tenth of a second and a C compiler; where there is none the program works
// without it, and `tokenhouse doctor` says so.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { root } from './basics.mjs';

const folderOfSources = path.join(root, 'src', 'inference', 'engines', 'llama', 'native');
/** What it is made of, headers too. */
export const nativeSources = () =>
  fs.existsSync(folderOfSources) ? fs.readdirSync(folderOfSources).map((name) => path.join(folderOfSources, name)) : [];
const platform = 'linux';

/** Processors that it is compiled for, with the names of their compilers where another processor compiles. */
const compilers = { x64: 'x86_64-linux-gnu-gcc', arm64: 'aarch64-linux-gnu-gcc' };

/** As `src/platform/entries.ts` has it. */
const nameFor = (cpu) => `llama-library-${platform}-${cpu}.node`;

/** Whether this computer is one that it is for. */
export const hasLlamaLibrary = process.platform === platform && compilers[process.arch] !== undefined;

/** For this computer, into a folder of the program; false where it cannot be compiled. What an earlier build has left stays. */
export function buildLlamaLibrary(folder) {
  return hasLlamaLibrary && compile(folder, process.arch, process.env.CC ?? 'cc') === undefined;
}

/** For those of these platforms that it is for; returns the ones that it could not be compiled for, and why. */
export function buildLlamaLibraries(folder, platforms) {
  return platforms.flatMap(({ os, cpu }) => {
    if (os !== platform) return [];
    const isOwn = os === process.platform && cpu === process.arch;
    const problem = compile(folder, cpu, isOwn ? (process.env.CC ?? 'cc') : compilers[cpu]);
    return problem === undefined ? [] : [{ os, cpu, problem }];
  });
}

/** Why it could not be done. Another process may load the file meanwhile, so it is replaced as a whole. */
function compile(folder, cpu, compiler) {
  const made = path.join(folder, `${nameFor(cpu)}.${process.pid}`);
  const sources = nativeSources().filter((name) => name.endsWith('.c'));
  if (sources.length === 0) return `there are no sources in ${folderOfSources}`;
  const options = ['-O2', '-shared', '-fPIC', '-s', '-o', made, ...sources];
  const { error, status, stderr } = spawnSync(compiler, options, {
    encoding: 'utf8',
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  if (error !== undefined) return error.code === 'ENOENT' ? `there is no ${compiler}` : error.message;
  if (status !== 0) {
    fs.rmSync(made, { force: true });
    return `${compiler} ended with code ${status}: ${stderr.split('\n')[0]}`;
  }
  fs.renameSync(made, path.join(folder, nameFor(cpu)));
  return undefined;
}
