// What the lock files hold, for whoever has to account for it: bills of materials (CycloneDX, as npm prints them) of the program and
// of the console, and one report of the licences of both. The packages that are published have a bill of their own, of what is
// bundled in them (scripts/package/bundled.mjs).
//
//   npm run build sbom                   into dist/sbom
//   npm run build sbom -- --to FOLDER    elsewhere
import fs from 'node:fs';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { fail, isStarted, readJson, root, runNpm, say } from './setup.mjs';

const parts = { program: root, console: path.join(root, 'web') };

/** Writes them; the same locks give the same bytes. */
export function writeBillsOfMaterials(folder) {
  fs.mkdirSync(folder, { recursive: true });
  const packages = new Map();
  for (const [name, of] of Object.entries(parts)) {
    const bill = billOf(of);
    fs.writeFileSync(path.join(folder, `${name}.cdx.json`), `${JSON.stringify(bill, null, 2)}\n`);
    for (const one of bill.components) packages.set(one.purl, one);
  }
  fs.writeFileSync(path.join(folder, 'licences.txt'), licenceReport([...packages.values()]));
  say(`sbom     ${packages.size} packages, in ${folder}`);
}

function billOf(folder) {
  const { status, stdout } = runNpm(['sbom', '--sbom-format=cyclonedx', '--package-lock-only'], {
    cwd: folder,
    capture: true,
  });
  if (status !== 0) fail('npm could not print a bill of materials; see above. It needs npm 10 or later.');
  // What differs at each run is not of the materials; names would be those of the folder and of aliases.
  const { serialNumber, metadata, components, dependencies, ...first } = JSON.parse(stdout.toString());
  const { timestamp, component, tools, ...about } = metadata;
  const own = component['bom-ref'];
  const kept = new Set([own, ...shippedOf(path.join(folder, 'package-lock.json'))]);
  const isKept = (reference) => kept.has(reference);
  // npm 10 names a package once for each place, and each place; npm 11 names it once. `Map` keeps one of each.
  const one = (list, key) => [...new Map(list.map((item) => [item[key], item])).values()];
  return {
    ...first,
    metadata: { ...about, component: { ...component, name: nameIn(own), properties: [] } },
    components: one(components, 'bom-ref')
      .filter((item) => isKept(item['bom-ref']))
      .map((item) => ({ ...item, name: nameIn(item['bom-ref']), properties: [] })),
    dependencies: one(dependencies, 'ref')
      .filter(({ ref }) => isKept(ref))
      .map(({ ref, dependsOn = [] }) => ({ ref, dependsOn: [...new Set(dependsOn)].filter(isKept).toSorted() })),
  };
}

const nameIn = (reference) => reference.slice(0, reference.lastIndexOf('@'));

/** What is not for development alone. npm's `--omit=dev` also leaves out what both need, such as nodemailer and pg-types. */
const shippedOf = (lockFile) =>
  Object.entries(readJson(lockFile).packages)
    .filter(([place, { dev, devOptional }]) => place !== '' && !dev && !devOptional)
    .map(([place, { name = place.split('node_modules/').at(-1), version }]) => `${name}@${version}`);

/** Each licence with its packages, the most frequent first. */
function licenceReport(packages) {
  const groups = new Map();
  for (const { purl, licenses = [] } of packages) {
    const licence = licenses.map(({ license, expression }) => expression ?? license.id ?? license.name).join(' AND ');
    const name = licence === '' ? 'not named in the lock; the text is in the archive' : licence;
    groups.set(name, [...(groups.get(name) ?? []), decodeURIComponent(purl.slice('pkg:npm/'.length))]);
  }
  return [...groups]
    .toSorted(([a, left], [b, right]) => right.length - left.length || (a < b ? -1 : 1))
    .map(
      ([name, of]) =>
        `${name} (${of.length})\n${of
          .toSorted()
          .map((one) => `  ${one}\n`)
          .join('')}`,
    )
    .join('\n');
}

if (isStarted(import.meta.url)) {
  const { values } = parseArgs({ options: { to: { type: 'string' } } });
  writeBillsOfMaterials(path.resolve(values.to ?? path.join(root, 'dist', 'sbom')));
}
