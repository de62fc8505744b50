// Checks the types of the web console (web/) against the account API's own document: a page that no longer fits it fails.
import { spawnSync } from 'node:child_process';
import path from 'node:path';
import { writeAccountTypes } from './account-client.mjs';
import { apiTypes, installConsole, web } from './console.mjs';
import { isStarted, root, setup } from './setup.mjs';

/** Installs what the checks of the console need; call it after `setup`. */
export async function prepareConsole() {
  installConsole();
  await writeAccountTypes({ generatorIn: web, file: apiTypes });
}

/** Checks the types; call it after `prepareConsole`. */
function checkConsoleTypes() {
  const compiler = path.join(root, 'node_modules', 'typescript-7', 'bin', 'tsc');
  const check = (project) => spawnSync(process.execPath, [compiler, '-p', project], { stdio: 'inherit' }).status ?? 1;
  return check(web) || check(path.join(root, 'tests', 'console'));
}

if (isStarted(import.meta.url)) {
  setup();
  await prepareConsole();
  process.exitCode = checkConsoleTypes();
}
