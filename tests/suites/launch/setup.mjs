// The programs that `tokenhouse launch` sets up, as their makers publish them, fetched once: 1.6 GB on the disk from npm, of which no
// install script runs, so that the programs of two of them are taken from the package of this platform; and Open WebUI, another 1.7 GB.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { cacheFolder } from '../../../scripts/cache-folder.mjs';
import { installedPackages } from '../../../scripts/npm-package.mjs';
import { say } from '../../../scripts/setup.mjs';
import { chromiumProgram } from '../browser/setup.mjs';

const platform = `${process.platform === 'win32' ? 'windows' : process.platform}-${process.arch}`;

const programs = [
  [
    'CLAUDE',
    '@anthropic-ai/claude-code',
    '2.1.332',
    `@anthropic-ai/claude-code-${process.platform}-${process.arch}/claude`,
  ],
  ['CODEX', '@openai/codex', '0.171.0', '.bin/codex'],
  ['OPENCODE', 'opencode-ai', '1.18.33', `opencode-${platform}/bin/opencode`],
  ['CLINE', 'cline', '3.0.65', '.bin/cline'],
  ['CONTINUE', '@continuedev/cli', '1.5.47', '.bin/cn'],
];

/** The folder of each program's command, by the name of the client; and a browser to look at Open WebUI with. */
export function setup() {
  const folders = programs.map(([name, source, version, program]) => {
    const file = path.join(installedPackages([[source, version]], 'launch-clients'), 'node_modules', program);
    if (!fs.existsSync(file)) throw new Error(`${source} ${version} has no program for ${platform}`);
    return [`TOKENHOUSE_TEST_${name}`, path.dirname(file)];
  });
  return {
    ...Object.fromEntries(folders),
    TOKENHOUSE_TEST_OPEN_WEBUI: openWebUi(),
    TOKENHOUSE_TEST_LIBRECHAT: installedPackages([['librechat-data-provider', '0.8.524']], 'launch-clients'),
    TOKENHOUSE_TEST_CHROMIUM: chromiumProgram(),
  };
}

const openWebUiVersion = '0.12.4';

/**
 * Without PyTorch, which is 5 GB with what it needs, and which runs models of its own for documents alone: pip would insist on it, and uv
 * may be told.
 */
function openWebUi() {
  const folder = cacheFolder(`open-webui-${openWebUiVersion}`);
  const [python, stamp] = [path.join(folder, 'bin', 'python'), path.join(folder, '.whole')];
  if (fs.existsSync(stamp)) return path.join(folder, 'bin');
  say(`fetch    Open WebUI ${openWebUiVersion}, 1.7 GB on the disk, once`);
  run(fittingPython(), ['-m', 'venv', '--clear', folder]);
  run(python, ['-m', 'pip', 'install', '--quiet', 'uv==0.13.9']);
  const without = path.join(folder, 'without.txt');
  fs.writeFileSync(without, 'torch ; sys_platform == "never"\n');
  const install = ['-m', 'uv', 'pip', 'install', '--quiet', '--python', python, '--override', without];
  run(python, [...install, `open-webui==${openWebUiVersion}`]);
  fs.writeFileSync(stamp, '');
  return path.join(folder, 'bin');
}

/** Open WebUI takes Python 3.11 and 3.12. */
function fittingPython() {
  const check = ['-c', 'import sys; sys.exit(0 if (3, 11) <= sys.version_info < (3, 13) else 1)'];
  const found = ['python3', 'python3.12', 'python3.11'].find(
    (name) => spawnSync(name, check, { stdio: 'ignore' }).status === 0,
  );
  if (found === undefined) throw new Error('Open WebUI needs Python 3.11 or 3.12 with its venv module');
  return found;
}

/** Gently, because other work may run beside it. */
function run(command, args) {
  const { status } = spawnSync('nice', [command, ...args], { stdio: ['ignore', 2, 2] });
  if (status !== 0) throw new Error(`${command} ${args.slice(0, 3).join(' ')} failed; check the network`);
}
