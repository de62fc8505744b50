import assert from 'node:assert/strict';
import { existsSync, readFileSync, rmSync } from 'node:fs';
import path from 'node:path';
import { describe, it } from 'node:test';
import { pathToFileURL } from 'node:url';
import { inRepository, root } from '../support/repository.ts';
import { until } from '../support/service.ts';
import { clone, run, type Clone } from './clone.ts';

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

const lines = (text: string): readonly string[] => text.split('\n').filter((line) => line !== '');

describe('building', () => {
  const project = clone(
    {
      'src/main.ts': main,
      'src/far/echo-child.ts': "import { one } from '../one.ts';\nprocess.stdout.write(`one is ${one}`);\n",
      'src/one.ts': 'export const one: number = 1;\n',
      'src/child.ts': 'export const unused = 1;\n',
    },
    { linkModules: true },
  );
  const output = (name: string): string => path.join(project.folder, 'dist', name);
  const build = () => ended(project, 'scripts/build.mjs');

  it('makes an entry of the command and of each thread, child and worker', async () => {
    assert.match((await build()).errors, /^build {4}\d+ files in/m);
    assert.ok(existsSync(output('main.js')));
    assert.ok(!existsSync(output('child.js')), 'a file that nothing needs is not built');
    assert.equal((await ended(project, 'dist/echo-child.js')).output, 'one is 1');
  });

  it('takes every change, and what is no longer made goes', async () => {
    project.write('src/one.ts', 'export const one: number = 2;\n');
    assert.equal((await build()).code, 0);
    assert.equal((await ended(project, 'dist/echo-child.js')).output, 'one is 2');
    rmSync(path.join(project.folder, 'src/far'), { recursive: true });
    assert.equal((await build()).code, 0);
    assert.ok(!existsSync(output('echo-child.js')), 'the output of a deleted source');
  });

  it('says where a source is wrong, and leaves what was built', async () => {
    const before = readFileSync(output('main.js'), 'utf8');
    for (const [text, message] of [
      ['const wrong = ;\n', /ERROR.*Unexpected ";"/],
      ["import './nothing.ts';\n", /ERROR.*Could not resolve "\.\/nothing\.ts"/],
    ] as const) {
      project.write('src/main.ts', text);
      const failed = await build();
      assert.equal(failed.code, 1);
      assert.match(failed.errors, message);
      assert.match(failed.errors, /src\/main\.ts:1:\d+:\n/);
      assert.match(failed.errors, /could not be bundled; see above/);
      assert.doesNotMatch(failed.errors, /\n\s+at /, 'no stack of the build itself');
      assert.equal(readFileSync(output('main.js'), 'utf8'), before);
    }
    project.write('src/main.ts', main);
    assert.equal((await build()).code, 0);
  });

  it('keeps the names of our files and lines in stacks', async () => {
    project.write('src/main.ts', "import './platform/stack-traces.ts';\nimport { fall } from './fall.ts';\nfall();\n");
    project.write('src/platform/stack-traces.ts', readFileSync(inRepository('src/platform/stack-traces.ts'), 'utf8'));
    project.write('src/fall.ts', '// A line before.\nexport const fall = (): never => {\n  throw new Error();\n};\n');
    assert.equal((await build()).code, 0);
    const { errors } = await ended(project, 'bin/tokenhouse.mjs');
    assert.match(errors, /src\/fall\.ts:3:\d+/);
    assert.match(errors, /src\/main\.ts:3:\d+/);
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
    const project = clone({ 'dist/main.js': main.replace('as const', '') }, { linkModules: true });
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

describe('developing', () => {
  it('builds and starts anew after every change, one program at a time, and says what is wrong', async () => {
    const text = (version: number): string => `
      process.on('SIGTERM', () => setTimeout(() => { process.stdout.write('ended ${version}\\n'); process.exit(); }, 100));
      process.stdout.write('began ${version}\\n');
      setInterval(() => {}, 1000);`;
    const project = clone({ 'src/main.ts': text(1) }, { linkModules: true });
    const program = run(project, ['scripts/dev.mjs']);
    await program.prints('began 1');
    project.write('src/main.ts', text(2));
    await program.prints('began 2');
    project.write('src/main.ts', 'const wrong = ;\n');
    await until(() => /src\/main\.ts:1:/.test(program.errors()), 30_000);
    project.write('src/main.ts', text(3));
    await program.prints('began 3');
    assert.equal(program.output(), 'began 1\nended 1\nbegan 2\nended 2\nbegan 3\n');
    program.child.kill('SIGTERM');
    assert.deepEqual(await program.ended, { code: 0, signal: null });
    assert.match(program.output(), /ended 3\n$/);
  });
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

  it('for the program alone leaves out what is for development, until somebody works on it', async () => {
    const packages = (name: string) => ({ [`${name}/package.json`]: JSON.stringify({ name, version: '1.0.0' }) });
    const description = {
      name: 'clone',
      version: '1.0.0',
      type: 'module',
      dependencies: { tiny: 'file:tiny' },
      devDependencies: { tool: 'file:tool' },
    };
    const locked = {
      name: 'clone',
      version: '1.0.0',
      lockfileVersion: 3,
      packages: {
        '': description,
        'node_modules/tiny': { resolved: 'tiny', link: true },
        'node_modules/tool': { resolved: 'tool', link: true, dev: true },
        tiny: { version: '1.0.0' },
        tool: { version: '1.0.0', dev: true },
      },
    };
    const project = clone(
      {
        'package.json': JSON.stringify(description),
        'package-lock.json': JSON.stringify(locked),
        ...packages('tiny'),
        ...packages('tool'),
        'set-up.mjs':
          "import { setup } from './scripts/setup.mjs';\nsetup({ onlyToRun: process.argv[2] === 'run' });\n",
      },
      { linkModules: false },
    );
    const installed = (name: string) => existsSync(path.join(project.folder, 'node_modules', name));
    const setUp = async (...args: string[]) => {
      const program = run(project, ['set-up.mjs', ...args], {
        HOME: path.join(project.folder, 'home'),
        npm_config_offline: 'true',
      });
      assert.equal((await program.ended).code, 0, program.errors());
      return lines(program.errors()).some((line) => line.startsWith('install  '));
    };
    assert.equal(await setUp('run'), true);
    assert.deepEqual([installed('tiny'), installed('tool')], [true, false]);
    assert.equal(await setUp('run'), false);
    assert.equal(await setUp(), true);
    assert.deepEqual([installed('tiny'), installed('tool')], [true, true]);
    assert.equal(await setUp('run'), false, 'a whole installation has what runs');
    assert.equal(await setUp(), false);
  });

  it('leaves linked dependencies alone', async () => {
    const project = clone({}, { linkModules: true });
    const { code } = await ended(project, 'scripts/setup.mjs');
    assert.equal(code, 0);
    assert.ok(readFileSync(path.join(project.folder, 'node_modules', 'typescript', 'package.json')).length > 0);
  });
});

describe('a clone that only runs the program', () => {
  const stampFile = 'node_modules/.tokenhouse-setup.json';
  const native = `${process.platform}-${process.arch}`;
  const lockedPackages = {
    '': { dependencies: { bundled: '1.0.0', native: '1.0.0' } },
    'node_modules/bundled': { version: '1.0.0' },
    'node_modules/esbuild': { version: '1.0.0' },
    'node_modules/native': { version: '1.0.0', dependencies: { helper: '1.0.0' } },
    'node_modules/native/node_modules/helper': { version: '2.0.0' },
    'node_modules/helper': { version: '1.0.0' },
    'node_modules/@photostructure/sqlite': { version: '1.0.0' },
  };
  const kept = [
    'node_modules/bundled/package.json',
    'node_modules/bundled/LICENSE.txt',
    'node_modules/bundled/index.js',
    'node_modules/esbuild/bin/esbuild',
    'node_modules/native/index.js',
    'node_modules/partly/data.json',
    'node_modules/native/node_modules/helper/index.js',
    `node_modules/@photostructure/sqlite/prebuilds/${native}/sqlite.node`,
    stampFile,
  ];
  const removed = [
    'node_modules/bundled/index.d.ts',
    'node_modules/bundled/other.js',
    'node_modules/bundled/deep/folder/README.md',
    'node_modules/native/index.d.ts',
    'node_modules/helper/index.js',
    'node_modules/partly/index.d.ts',
    'node_modules/@photostructure/sqlite/prebuilds/plan9-mips/sqlite.node',
    'node_modules/@photostructure/sqlite/src/sqlite.c',
  ];
  const project = (stamp: object) =>
    clone(
      {
        'package-lock.json': JSON.stringify({ packages: lockedPackages }),
        ...Object.fromEntries([...kept, ...removed].map((file) => [file, 'text'])),
        [stampFile]: JSON.stringify(stamp),
        'slim.mjs': `import { slim } from './scripts/slim.mjs';
          slim(['src/main.ts', 'node_modules/bundled/index.js'], {
            packages: ['native', 'esbuild', /^@photostructure/],
            folders: ['partly'],
          });`,
      },
      { linkModules: false },
    );

  it('keeps what the bundle was made of and what is loaded as it is installed', async () => {
    const small = project({ isOwn: true, everything: false });
    assert.equal((await ended(small, 'slim.mjs')).errors, '');
    const isThere = (file: string): boolean => existsSync(path.join(small.folder, file));
    assert.deepEqual(
      kept.filter((file) => !isThere(file)),
      [],
    );
    assert.deepEqual(removed.filter(isThere), []);
    assert.ok(!isThere('node_modules/bundled/deep'), 'no empty folders');
    assert.equal(
      (JSON.parse(readFileSync(path.join(small.folder, stampFile), 'utf8')) as { isSlim?: boolean }).isSlim,
      true,
    );
  });

  for (const [why, stamp] of Object.entries({
    'somebody works in': { isOwn: true, everything: true },
    'somebody else has installed': { isOwn: false, everything: false },
  }))
    it(`is not one that ${why}`, async () => {
      const whole = project(stamp);
      assert.equal((await ended(whole, 'slim.mjs')).errors, '');
      assert.deepEqual(
        [...kept, ...removed].filter((file) => !existsSync(path.join(whole.folder, file))),
        [],
      );
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
  });
  const offline = (project: Clone) => ({ HOME: path.join(project.folder, 'home'), npm_config_offline: 'true' });

  it('are installed apart, when they are missing or their lock changed, and never by a build', async () => {
    const project = clone({ 'src/main.ts': main, ...client('1.0.0') }, { linkModules: true });
    project.write('home/.keep', '');
    const setUp = async () => {
      const program = run(project, ['scripts/clients.mjs'], offline(project));
      assert.equal((await program.ended).code, 0, program.errors());
      return /^install {2}the client libraries/m.test(program.errors());
    };
    const modules = path.join(project.folder, 'tests', 'clients', 'node_modules');
    const said = () => readFileSync(path.join(modules, 'tiny', 'index.js'), 'utf8');

    assert.equal((await ended(project, 'scripts/build.mjs')).code, 0);
    assert.ok(!existsSync(modules), 'what `npm start` does installs no clients, and builds without them');
    assert.equal(await setUp(), true);
    assert.match(said(), /tiny 1\.0\.0/);
    assert.equal(await setUp(), false);

    for (const [file, text] of Object.entries(client('1.0.1'))) project.write(file, text);
    assert.equal(await setUp(), true);
    assert.equal(await setUp(), false);
    assert.match(said(), /tiny 1\.0\.1/);
  });

  it('that cannot be installed say what to do', async () => {
    const files = { ...client('1.0.0'), 'tests/clients/package.json': '{ "dependencies": { "other": "1.0.0" } }' };
    const project = clone({ 'src/main.ts': main, ...files }, { linkModules: true });
    const program = run(project, ['scripts/clients.mjs'], offline(project));
    assert.equal((await program.ended).code, 1);
    assert.match(program.errors(), /client libraries of the tests could not be installed\. Check the network/);
  });
});
