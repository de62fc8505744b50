import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, describe, it } from 'node:test';
import { readEnvironment } from '../../src/config/environment.ts';
import { loadConfig } from '../../src/config/load.ts';
import { goodFile } from './good-file.ts';

const folder = mkdtempSync(path.join(os.tmpdir(), 'tokenhouse-config-'));
after(() => rmSync(folder, { recursive: true }));
const inFolder = (name: string) => path.join(folder, name);
const load = (variables: Record<string, string>, file?: string, directory = folder) =>
  loadConfig({ environment: readEnvironment({ HOME: '/h', ...variables }), path: file, directory });

describe('finding the configuration', () => {
  it('uses the defaults where there is no file', () => {
    const config = load({});
    assert.equal(config.file, undefined);
    assert.deepEqual(config.storage, {
      type: 'sqlite',
      path: inFolder('data/tokenhouse.db'),
      directory: inFolder('data'),
    });
  });

  it('keeps data in the folder of the user where there are none of its own, when it is installed', () => {
    const here = inFolder('anywhere');
    mkdirSync(path.join(here, 'data'), { recursive: true });
    const environment = { ...readEnvironment({ HOME: '/h' }), dataDirectory: '/h/.local/share/tokenhouse' };
    const storedIn = (): string => loadConfig({ environment, directory: here }).storage.directory;
    assert.equal(storedIn(), '/h/.local/share/tokenhouse/data');
    writeFileSync(path.join(here, 'data', 'tokenhouse.db'), '');
    assert.equal(storedIn(), path.join(here, 'data'));
    rmSync(path.join(here, 'data'), { recursive: true });
    writeFileSync(path.join(here, 'tokenhouse.yaml'), '{}');
    assert.equal(storedIn(), path.join(here, 'data'));
  });

  it('finds the configuration where the data are, when it is installed', () => {
    const [here, ofUser] = ['another-place', 'of-user'].map(inFolder);
    for (const made of [here!, ofUser!]) mkdirSync(made);
    const environment = { ...readEnvironment({ HOME: '/h' }), dataDirectory: ofUser };
    const found = () => loadConfig({ environment, directory: here! });
    assert.equal(found().file, undefined);
    const file = path.join(ofUser!, 'tokenhouse.yaml');
    writeFileSync(file, 'server: { inference: { port: 9004 } }\n');
    assert.equal(found().file, file);
    assert.equal(found().server.inference.port, 9004);
    assert.equal(found().storage.directory, path.join(ofUser!, 'data'));
    writeFileSync(file, 'serve: {}\n');
    assert.throws(found, (error: Error) => error.message.startsWith(`${file}:1:1`), 'named as the reader finds it');
    writeFileSync(path.join(here!, 'tokenhouse.yaml'), 'server: { inference: { port: 9005 } }\n');
    assert.equal(found().server.inference.port, 9005);
  });

  it('never takes the defaults for a file that was named', () => {
    assert.throws(() => load({}, 'missing.yaml'), /missing\.yaml: does not exist/);
    assert.throws(() => load({ TOKENHOUSE_CONFIG: 'missing-too.yaml' }), /missing-too\.yaml: does not exist/);
  });

  it('prefers --config, then TOKENHOUSE_CONFIG, then the folder', () => {
    const here = inFolder('order');
    mkdirSync(here);
    for (const [name, port] of [
      ['tokenhouse', 9001],
      ['variable', 9002],
      ['option', 9003],
    ] as const) {
      writeFileSync(path.join(here, `${name}.yaml`), `server: { inference: { port: ${port} } }\n`);
    }
    assert.equal(load({}, undefined, here).server.inference.port, 9001);
    assert.equal(load({ TOKENHOUSE_CONFIG: 'variable.yaml' }, undefined, here).server.inference.port, 9002);
    assert.equal(load({ TOKENHOUSE_CONFIG: 'variable.yaml' }, 'option.yaml', here).server.inference.port, 9003);
  });

  it('counts relative paths from the file, not from where it was started', () => {
    mkdirSync(inFolder('elsewhere'));
    writeFileSync(inFolder('elsewhere/good.yaml'), goodFile);
    const config = load({ UPSTREAM_KEY: 'x' }, 'elsewhere/good.yaml');
    assert.equal(config.file, inFolder('elsewhere/good.yaml'));
    assert.deepEqual(config.storage, {
      type: 'sqlite',
      path: inFolder('elsewhere/data/my.db'),
      directory: inFolder('elsewhere/data'),
    });
    const [llama] = config.models[0]!.backends;
    assert.ok(llama?.engine === 'llama' && llama.sources[0]?.type === 'path');
    assert.equal(llama.sources[0].path, inFolder('elsewhere/models/small.gguf'));
  });

  it('reads a file with a byte order mark and Windows line ends', () => {
    writeFileSync(inFolder('bom.yaml'), '\ufeffserver:\r\n  inference: { port: 9004 }\r\n');
    assert.equal(load({}, 'bom.yaml').server.inference.port, 9004);
  });

  it('says what keeps a file from being read', () => {
    assert.throws(() => load({}, '.'), /\.: is a folder; name the file in it/);
    writeFileSync(inFolder('latin1.yaml'), Buffer.from([0x61, 0x3a, 0x20, 0xe9]));
    assert.throws(() => load({}, 'latin1.yaml'), /latin1\.yaml: is not UTF-8 text/);
    writeFileSync(inFolder('huge.yaml'), Buffer.alloc(5 * 1024 * 1024, '#'));
    assert.throws(() => load({}, 'huge.yaml'), /huge\.yaml: has 5242880 bytes/);
  });

  it('names the file in the messages as it was named', () => {
    writeFileSync(inFolder('bad.yaml'), 'server: { prot: 1 }\n');
    assert.throws(() => load({}, './bad.yaml'), /^ConfigError: \.\/bad\.yaml:1:11: unknown key "prot"/);
  });
});
