import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

interface Program {
  readonly language: string;
  readonly text: string;
  /** Names it. */
  readonly where: string;
}

/** Runs a program in a folder below `runFolder`, where the client libraries are found. */
export async function runProgram({ language, text, where }: Program, folder: string, key: string) {
  const file = join(folder, `${where.replaceAll(/\W/g, '-')}.mjs`);
  if (language === 'js') writeFileSync(file, text);
  // Where the tests have the newest clients, the programs have them too.
  const [command, args] = language === 'js' ? [process.execPath, [...imports(), file]] : ['sh', ['-e', '-c', text]];
  const child = spawn(command, args, {
    cwd: folder,
    env: { ...process.env, TOKENHOUSE_KEY: key },
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: 120_000,
  });
  let [stdout, stderr] = ['', ''];
  child.stdout.on('data', (bytes: Buffer) => (stdout += bytes.toString()));
  child.stderr.on('data', (bytes: Buffer) => (stderr += bytes.toString()));
  const code = await new Promise<number | null>((resolve, reject) => {
    child.on('error', reject);
    child.on('close', resolve);
  });
  return { code, stdout, stderr };
}

/** `--import` options that this process was started with. */
function imports(): readonly string[] {
  const { execArgv } = process;
  return execArgv.flatMap((option, index) =>
    option === '--import' ? [option, execArgv[index + 1] ?? ''] : option.startsWith('--import=') ? [option] : [],
  );
}
