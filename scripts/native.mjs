// Compiles our native library: `kept-threads.c`, which keeps llama.cpp's threads between steps, and `choice.c`, which makes short
// steps and chooses tokens. It takes a tenth of a second and a C compiler; without one the program works without the library, and
// `tokenhouse doctor` says so.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { root } from './basics.mjs';

const folderOfSources = path.join(root, 'src', 'inference', 'engines', 'llama', 'native');
/** The library's sources, including headers. */
export const nativeSources = () =>
  fs.existsSync(folderOfSources) ? fs.readdirSync(folderOfSources).map((name) => path.join(folderOfSources, name)) : [];
const platform = 'linux';

/** Processors that it is compiled for, with the names of their cross compilers. */
const compilers = { x64: 'x86_64-linux-gnu-gcc', arm64: 'aarch64-linux-gnu-gcc' };

/** The same name as in `src/platform/entries.ts`. */
const nameFor = (cpu) => `llama-library-${platform}-${cpu}.node`;

/** Whether the library supports this computer. */
export const hasLlamaLibrary = process.platform === platform && compilers[process.arch] !== undefined;

/**
 * Builds it for this computer, into a folder of the program; returns false if it cannot be compiled. The result of an earlier build
 * stays.
 */
export function buildLlamaLibrary(folder) {
  return hasLlamaLibrary && compile(folder, process.arch, process.env.CC ?? 'cc') === undefined;
}

/** Builds it for the supported ones of these platforms; returns those for which it could not be compiled, and why. */
export function buildLlamaLibraries(folder, platforms) {
  return platforms.flatMap(({ os, cpu }) => {
    if (os !== platform) return [];
    const isOwn = os === process.platform && cpu === process.arch;
    const problem = compile(folder, cpu, isOwn ? (process.env.CC ?? 'cc') : compilers[cpu]);
    return problem === undefined ? [] : [{ os, cpu, problem }];
  });
}

/** Compiles it; returns why that failed, if it did. Another process may load the file meanwhile, so it is replaced atomically. */
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
