/** A registry of npm with nothing in it but our packages. It counts what is fetched. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';

export interface Registry {
  readonly url: string;
  /** The names of the archives that were fetched, and their bytes. */
  readonly fetched: ReadonlyMap<string, number>;
  close(): Promise<void>;
}

interface PackageFile {
  readonly name: string;
  readonly version: string;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
}

/** Serves what `scripts/package.mjs` made in this folder; packages of other platforms have a description and no archive. */
export async function serveRegistry(folder: string): Promise<Registry> {
  const fetched = new Map<string, number>();
  const made = readdirSync(join(folder, 'parts')).map(
    (part) => JSON.parse(readFileSync(join(folder, 'parts', part, 'package.json'), 'utf8')) as PackageFile,
  );
  const program = made.find(({ name }) => name === 'tokenhouse');
  assert.ok(program !== undefined);
  const others = Object.entries(program.optionalDependencies ?? {})
    .filter(([name]) => !made.some((one) => one.name === name))
    .map(([name, version]) => {
      const [os, cpu] = name.split('/')[1]!.split('-');
      return { name, version, os: [os], cpu: [cpu] };
    });
  const archiveOf = ({ name, version }: PackageFile): string =>
    `${name.replace(/^@/, '').replace('/', '-')}-${version}.tgz`;
  const server = createServer((request, response) => {
    const wanted = decodeURIComponent(request.url ?? '/').slice(1);
    const found = [...made, ...others].find(({ name }) => name === wanted);
    const file = join(folder, wanted);
    if (found !== undefined) {
      response.setHeader('content-type', 'application/json');
      response.end(JSON.stringify(describe(found, archiveOf(found), folder, `http://${request.headers.host}`)));
    } else if (/^[\w.-]+\.tgz$/.test(wanted) && existsSync(file)) {
      const bytes = readFileSync(file);
      fetched.set(wanted, bytes.length);
      response.end(bytes);
    } else response.writeHead(404).end('{}');
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
    fetched,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

function describe(found: PackageFile, archive: string, folder: string, url: string): object {
  const file = join(folder, archive);
  const integrity = existsSync(file)
    ? { integrity: `sha512-${createHash('sha512').update(readFileSync(file)).digest('base64')}` }
    : {};
  const version = { ...found, dist: { tarball: `${url}/${archive}`, ...integrity } };
  return { name: found.name, 'dist-tags': { latest: found.version }, versions: { [found.version]: version } };
}
