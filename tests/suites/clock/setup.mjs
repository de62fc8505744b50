// libfaketime moves the clock of one process. From Debian's package: the installed one, else a copy of its own. Replicas
// whose clocks differ share a real PostgreSQL.
import fs from 'node:fs';
import path from 'node:path';
import { unpackedPackage } from '../../../scripts/debian-package.mjs';
import { postgresBinaries } from '../../../scripts/postgres.mjs';

const remedy = 'Debian, Ubuntu: apt-get update && apt-get install libfaketime';

export function setup() {
  if (process.platform !== 'linux') throw new Error('the clock of a process can be moved on Linux only');
  return { TOKENHOUSE_TEST_FAKETIME: faketime(), TOKENHOUSE_TEST_POSTGRES: postgresBinaries() };
}

function faketime() {
  const found =
    libraryBelow('/usr/lib') ?? libraryBelow('/usr/local/lib') ?? libraryBelow(unpackedPackage('libfaketime'));
  if (found === undefined) throw new Error(`libfaketime is missing. ${remedy}`);
  return found;
}

/** `<folder>/…/faketime/libfaketime.so.1` */
function libraryBelow(folder) {
  const places = ['.', 'usr/lib'].map((below) => path.join(folder, below)).filter((place) => fs.existsSync(place));
  return places
    .flatMap((place) => [place, ...fs.readdirSync(place).map((name) => path.join(place, name))])
    .map((place) => path.join(place, 'faketime', 'libfaketime.so.1'))
    .find((file) => fs.existsSync(file));
}
