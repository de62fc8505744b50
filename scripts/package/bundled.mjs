// What the npm package is made of, besides our own sources: taken from what esbuild has read, so that the list is complete and has
// nothing else.
import fs from 'node:fs';
import path from 'node:path';
import { readJson, root } from '../setup.mjs';
import { platforms } from './platforms.mjs';

/** Each package in the bundle, in the console and in the packages of the platforms: `{ name, version, license, integrity, folder }`. */
export function bundledPackages(inputs) {
  const ofProgram = inputs.flatMap((file) => /^(?:.*\/)?node_modules\/(?:@[^/]+\/)?[^/]+/.exec(file)?.[0] ?? []);
  const engines = platforms.map(({ engine }) => `node_modules/${engine}`);
  const web = path.join(root, 'web');
  const { packages } = readJson(path.join(web, 'package-lock.json'));
  const ofConsole = Object.keys(packages).filter(
    (name) => name !== '' && !packages[name].dev && !packages[name].optional,
  );
  const found = [...described(root, [...ofProgram, ...engines]), ...described(web, ofConsole)];
  const all = new Map(found.map((one) => [`${one.name}@${one.version}`, one]));
  return [...all.keys()].toSorted().map((key) => all.get(key));
}

function described(base, folders) {
  const { packages } = readJson(path.join(base, 'package-lock.json'));
  return folders.map((folder) => {
    const { name = folder.split('node_modules/').at(-1), version, license, integrity } = packages[folder];
    return { name, version, license, integrity, folder: path.join(base, folder) };
  });
}

export function licenceTexts(packages) {
  const parts = packages.map(({ name, version, license, folder }) => {
    // A package of another platform is not installed here; its licence is in that platform's package.
    const files = fs.existsSync(folder) ? fs.readdirSync(folder).filter(isLicence) : [];
    const texts = files.map((file) => fs.readFileSync(path.join(folder, file), 'utf8').trim());
    return [`${name} ${version} (${license})`, ...texts].join('\n\n');
  });
  return `What tokenhouse is made of, besides its own sources.\n\n${parts.join(`\n\n${'-'.repeat(80)}\n\n`)}\n`;
}

const isLicence = (file) => /^(licen[cs]e|notice|copying)/i.test(file);

/** CycloneDX 1.6. */
export function billOfMaterials({ name, version, license }, packages) {
  const reference = (of, at) => `pkg:npm/${of.replace('@', '%40')}@${at}`;
  return {
    $schema: 'http://cyclonedx.org/schema/bom-1.6.schema.json',
    bomFormat: 'CycloneDX',
    specVersion: '1.6',
    version: 1,
    metadata: {
      component: {
        ...{ type: 'application', name, version, purl: reference(name, version), 'bom-ref': reference(name, version) },
        licenses: [{ license: { id: license } }],
      },
    },
    components: packages.map((one) => ({
      type: 'library',
      ...nameParts(one.name),
      version: one.version,
      purl: reference(one.name, one.version),
      'bom-ref': reference(one.name, one.version),
      licenses: typeof one.license === 'string' ? [{ expression: one.license }] : [],
      hashes: hashesOf(one.integrity),
    })),
    dependencies: [
      {
        ref: reference(name, version),
        dependsOn: packages.map((one) => reference(one.name, one.version)),
      },
    ],
  };
}

const nameParts = (name) => (name.startsWith('@') ? { group: name.split('/')[0], name: name.split('/')[1] } : { name });

/** Hashes of the archive in the registry, from the lock file. */
function hashesOf(integrity) {
  const [, kind, base64] = /^(sha512)-(.+)$/.exec(integrity ?? '') ?? [];
  return kind === undefined ? [] : [{ alg: 'SHA-512', content: Buffer.from(base64, 'base64').toString('hex') }];
}
