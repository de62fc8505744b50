// The terminal programs that `tokenhouse launch` sets up, as their makers publish them on npm: 1.6 GB on the disk, fetched once. No
// install script runs, so the programs of two of them are taken from the package of this platform.
import fs from 'node:fs';
import path from 'node:path';
import { installedPackages } from '../../../scripts/npm-package.mjs';

const platform = `${process.platform === 'win32' ? 'windows' : process.platform}-${process.arch}`;

const programs = [
  [
    'CLAUDE',
    '@anthropic-ai/claude-code',
    '2.1.332',
    `@anthropic-ai/claude-code-${process.platform}-${process.arch}/claude`,
  ],
  ['CODEX', '@openai/codex', '0.169.0', '.bin/codex'],
  ['OPENCODE', 'opencode-ai', '1.18.33', `opencode-${platform}/bin/opencode`],
  ['CLINE', 'cline', '3.0.65', '.bin/cline'],
  ['CONTINUE', '@continuedev/cli', '1.5.47', '.bin/cn'],
];

/** The folder of each program's command, by the name of the client. */
export function setup() {
  return Object.fromEntries(
    programs.map(([name, source, version, program]) => {
      const file = path.join(installedPackages([[source, version]], 'launch-clients'), 'node_modules', program);
      if (!fs.existsSync(file)) throw new Error(`${source} ${version} has no program for ${platform}`);
      return [`TOKENHOUSE_TEST_${name}`, path.dirname(file)];
    }),
  );
}
