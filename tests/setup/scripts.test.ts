import assert from 'node:assert/strict';
import { existsSync, readFileSync, rmSync, statSync } from 'node:fs';
import path from 'node:path';
import { describe, it } from 'node:test';
import { pathToFileURL } from 'node:url';
import { clone, root, run, type Clone } from './clone.ts';

const scripts = (await import(pathToFileURL(path.join(root, 'scripts', 'setup.mjs')).href)) as {
  nodeProblem(version: string): string | undefined;
  nodeRemark(version: string): string | undefined;
};

describe('the version of Node', () => {
  it('is refused below 20.19, in words that help', () => {
    for (const version of ['12.22.0', '18.20.4', '20.0.0', '20.18.3']) {
      assert.match(
        scripts.nodeProblem(version)!,
        new RegExp(`needs Node 20\\.19 or later, and this is ${version.replaceAll('.', '\\.')}\\. Install`),
      );
    }
    for (const version of ['20.19.0', '20.20.2', '22.0.0', '24.18.1', '25.0.0'])
      assert.equal(scripts.nodeProblem(version), undefined);
  });

  it('20 is remarked upon, others are not', () => {
    assert.match(scripts.nodeRemark('20.19.0')!, /past its end of life/);
    for (const version of ['22.23.2', '24.18.1']) assert.equal(scripts.nodeRemark(version), undefined);
  });
});

const main = `
let count = 0;
for (const name of ['SIGINT', 'SIGTERM'] as const) process.on(name, () => {
  process.stdout.write(\`\${name} \${++count}\\n\`);
  setTimeout(() => process.exit(3), 500);
});
process.stdout.write(\`arguments \${process.argv.slice(2).join(' ')}\\n\`);
if (process.argv[2] === 'serve') setInterval(() => {}, 1000);
else process.exitCode = 4;
`;

const ended = async (project: Clone, ...args: string[]) => {
  const program = run(project, args);
  return { ...(await program.ended), output: program.output(), errors: program.errors() };
};

describe('building', () => {
  it('happens when something changed, and only then', async () => {
    const project = clone(
      { 'src/main.ts': main, 'src/other.ts': 'export const one: number = 1;\n' },
      { linkModules: true },
    );
    const [output, leftover] = ['dist/src/main.js', 'dist/src/other.js'].map((file) =>
      path.join(project.folder, file),
    ) as [string, string];
    const build = () => ended(project, 'scripts/build.mjs');

    assert.match((await build()).errors, /^build {4}2 files in/m);
    assert.ok(existsSync(output) && existsSync(leftover));

    const before = statSync(output).mtimeMs;
    const again = await build();
    assert.deepEqual([again.code, /^build/m.test(again.errors)], [0, false], 'nothing changed');
    assert.equal(statSync(output).mtimeMs, before);

    project.write('src/main.ts', `${main}// changed\n`);
    assert.match((await build()).errors, /^build/m);

    rmSync(output);
    rmSync(path.join(project.folder, 'src/other.ts'));
    assert.equal((await build()).code, 0);
    assert.ok(existsSync(output), 'an output that went missing comes back');
    assert.ok(!existsSync(leftover), 'the output of a deleted source goes');

    project.write('src/main.ts', 'const wrong: number = "text";\n');
    for (let time = 1; time <= 2; time++) {
      const failed = await build();
      assert.equal(failed.code, 1, 'a fault is told each time');
      assert.match(failed.errors, /TS2322[^]*The sources do not compile/);
    }
    project.write('src/main.ts', main);
    assert.equal((await build()).code, 0);
  });
});

describe('the command', () => {
  it('explains a clone that is not built', async () => {
    const project = clone({}, { linkModules: true });
    const { code, output, errors } = await ended(project, 'bin/tokenhouse.mjs', 'keys', 'list');
    assert.deepEqual([code, output], [1, '']);
    assert.match(errors, /not built yet\. Run `npm start` .* or `npm run build`/);
    assert.doesNotMatch(errors, /\n\s+at /);
  });

  it('hands over its arguments and its exit code', async () => {
    const project = clone({ 'dist/src/main.js': main.replace('as const', '') }, { linkModules: true });
    const { code, output } = await ended(project, 'bin/tokenhouse.mjs', 'keys', 'create', '--name', 'a b');
    assert.deepEqual([code, output], [4, 'arguments keys create --name a b\n']);
  });
});

describe('starting', () => {
  const project = clone({ 'src/main.ts': main.replace('500', '2_000') }, { linkModules: true });

  it('serves in the same process, with the arguments', async () => {
    const program = run(project, ['scripts/start.mjs', '--config', 'x.yaml']);
    await program.prints('arguments serve --config x.yaml');
    program.child.kill('SIGTERM');
    assert.deepEqual(await program.ended, { code: 3, signal: null });
    assert.match(program.output(), /SIGTERM 1/);
  });

  for (const name of ['SIGINT', 'SIGTERM'] as const) {
    it(`takes the echo of ${name} that npm adds for the same one, and a later one for a second`, async () => {
      const program = run(project, ['scripts/start.mjs']);
      await program.prints('arguments serve');
      program.child.kill(name);
      await program.prints(`${name} 1`);
      program.child.kill(name);
      await new Promise((resolve) => setTimeout(resolve, 600)); // Longer than an echo takes: this is the time that is tested.
      assert.doesNotMatch(program.output(), /2/);
      program.child.kill(name);
      await program.prints(`${name} 2`);
      assert.deepEqual(await program.ended, { code: 3, signal: null });
    });
  }
});

describe('installing', () => {
  const lock = (version: string) =>
    JSON.stringify({
      name: 'clone',
      version: '1.0.0',
      lockfileVersion: 3,
      packages: {
        '': { name: 'clone', version: '1.0.0', dependencies: { tiny: 'file:tiny' } },
        'node_modules/tiny': { resolved: 'tiny', link: true },
        tiny: { version },
      },
    });
  const files = (version: string) => ({
    'package.json': JSON.stringify({
      name: 'clone',
      version: '1.0.0',
      type: 'module',
      dependencies: { tiny: 'file:tiny' },
    }),
    'package-lock.json': lock(version),
    'tiny/package.json': JSON.stringify({ name: 'tiny', version, scripts: { install: 'touch ../script-has-run' } }),
  });

  it('happens when it is missing or the lock changed, without scripts, from an empty home folder', async () => {
    const project = clone(files('1.0.0'), { linkModules: false });
    project.write('home/.keep', '');
    const setup = async () => {
      const program = run(project, ['scripts/setup.mjs'], {
        HOME: path.join(project.folder, 'home'),
        npm_config_offline: 'true',
      });
      const { code } = await program.ended;
      assert.equal(code, 0, program.errors());
      return /^install {2}the locked/m.test(program.errors());
    };
    assert.equal(await setup(), true);
    assert.ok(existsSync(path.join(project.folder, 'node_modules', 'tiny', 'package.json')));
    assert.equal(await setup(), false);

    for (const [file, text] of Object.entries(files('1.0.1'))) project.write(file, text);
    assert.equal(await setup(), true);
    assert.equal(await setup(), false);

    rmSync(path.join(project.folder, 'node_modules', '.tokenhouse-setup.json'));
    assert.equal(await setup(), false, 'what somebody installed by hand is taken as it is');

    rmSync(path.join(project.folder, 'node_modules'), { recursive: true });
    assert.equal(await setup(), true);
    assert.ok(!existsSync(path.join(project.folder, 'script-has-run')));
  });

  it('that fails says what to do, and is tried again', async () => {
    const project = clone(
      { ...files('1.0.0'), 'package.json': JSON.stringify({ name: 'clone', dependencies: { other: '1.0.0' } }) },
      { linkModules: false },
    );
    for (let time = 1; time <= 2; time++) {
      const program = run(project, ['scripts/setup.mjs'], { npm_config_offline: 'true' });
      assert.equal((await program.ended).code, 1);
      assert.match(program.errors(), /could not be installed\. Check the network/);
    }
  });

  it('leaves linked dependencies alone', async () => {
    const project = clone({}, { linkModules: true });
    const { code } = await ended(project, 'scripts/setup.mjs');
    assert.equal(code, 0);
    assert.ok(readFileSync(path.join(project.folder, 'node_modules', 'typescript', 'package.json')).length > 0);
  });
});

describe('the client libraries of the tests', () => {
  const client = (version: string) => ({
    'tests/clients/package.json': JSON.stringify({
      name: 'clients',
      type: 'module',
      dependencies: { tiny: 'file:tiny' },
    }),
    'tests/clients/package-lock.json': JSON.stringify({
      name: 'clients',
      lockfileVersion: 3,
      packages: {
        '': { name: 'clients', dependencies: { tiny: 'file:tiny' } },
        'node_modules/tiny': { resolved: 'tiny', link: true },
        tiny: { version },
      },
    }),
    'tests/clients/tiny/package.json': JSON.stringify({ name: 'tiny', version, type: 'module', main: 'index.js' }),
    'tests/clients/tiny/index.js': `export const said = 'tiny ${version}';`,
    'tests/clients/tiny/index.d.ts': 'export declare const said: string;',
    'tests/clients/tsconfig.json': readFileSync(path.join(root, 'tests', 'clients', 'tsconfig.json'), 'utf8'),
    'tests/clients/a.ts': "import { said } from 'tiny';\nprocess.stdout.write(said);\n",
  });
  const offline = (project: Clone) => ({ HOME: path.join(project.folder, 'home'), npm_config_offline: 'true' });

  it('are installed apart, when they are missing or their lock changed, and never by a build', async () => {
    const project = clone({ 'src/main.ts': main, ...client('1.0.0') }, { linkModules: true });
    project.write('home/.keep', '');
    const setUp = async (...args: string[]) => {
      const program = run(project, ['scripts/clients.mjs', ...args], offline(project));
      assert.equal((await program.ended).code, 0, program.errors());
      return /^install {2}the client libraries/m.test(program.errors());
    };
    const said = async () => (await ended(project, 'dist/tests/clients/a.js')).output;
    const modules = path.join(project.folder, 'tests', 'clients', 'node_modules');

    assert.equal((await ended(project, 'scripts/build.mjs')).code, 0);
    assert.ok(!existsSync(modules), 'what `npm start` does installs no clients, and builds without them');
    assert.equal(await setUp(), true);
    assert.equal(await said(), 'tiny 1.0.0');
    assert.equal(await setUp(), false);

    for (const [file, text] of Object.entries(client('1.0.1'))) project.write(file, text);
    assert.equal(await setUp('--install-only'), true);
    assert.equal(await setUp(), false);
    assert.equal(await said(), 'tiny 1.0.1');

    assert.equal((await ended(project, 'scripts/build.mjs')).code, 0);
    assert.equal(await said(), 'tiny 1.0.1', 'a build leaves the tests of the clients where they are');
  });

  it('that cannot be installed say what to do', async () => {
    const files = { ...client('1.0.0'), 'tests/clients/package.json': '{ "dependencies": { "other": "1.0.0" } }' };
    const project = clone({ 'src/main.ts': main, ...files }, { linkModules: true });
    const program = run(project, ['scripts/clients.mjs'], offline(project));
    assert.equal((await program.ended).code, 1);
    assert.match(program.errors(), /client libraries of the tests could not be installed\. Check the network/);
  });
});
