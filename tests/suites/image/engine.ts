import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';

import { inRepository } from '../../support/repository.ts';
import { assertRuns, run } from '../../support/run.ts';
import type { Ran } from '../../support/run.ts';
import { until } from '../../support/service.ts';

/**
 * Podman as `setup.mjs` has set it up: with images, containers and volumes in a folder of its own, and in a network of its own, so that
 * ports that are published, and rules of the firewall, are not this computer's.
 */
export class Engine {
  readonly #holder: ChildProcess;

  private constructor(holder: ChildProcess) {
    this.#holder = holder;
    // Then no hook of the tests runs.
    for (const signal of ['SIGINT', 'SIGTERM'] as const)
      process.once(signal, () => {
        clear();
        process.kill(process.pid, signal);
      });
  }

  static async start(): Promise<Engine> {
    const holder = spawn('unshare', ['--net', 'sh', '-c', 'ip link set lo up && echo up && exec sleep infinity'], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    let said = '';
    holder.stdout.on('data', (text: Buffer) => (said += text.toString()));
    await until(() => {
      assert.equal(holder.exitCode, null, 'no network of its own could be made with unshare');
      return said === 'up\n';
    });
    return new Engine(holder);
  }

  /** Before a command, so that it runs in the network that the ports are published in. */
  get network(): readonly string[] {
    return ['nsenter', '--target', String(this.#holder.pid), '--net'];
  }

  /** Builds with the network of this computer, for the registries of packages; those of images are not asked. */
  async build(...words: readonly string[]): Promise<string> {
    return await assertRuns('podman', ['build', '--format', 'docker', '--network', 'host', '--pull=never', ...words]);
  }

  run(...words: readonly string[]): Promise<Ran> {
    const [command, ...args] = [...this.network, 'podman', ...words];
    return run(command!, args);
  }

  podman(...words: readonly string[]): Promise<string> {
    const [command, ...args] = [...this.network, 'podman', ...words];
    return assertRuns(command!, args);
  }

  /** podman-compose with files of a folder. */
  compose(folder: string, ...words: readonly string[]): Promise<string> {
    const program = process.env['PODMAN_COMPOSE']!;
    const [command, ...args] = [...this.network, 'python3', program, ...words];
    const variables = { PYTHONPATH: program.replace(/\/bin\/[^/]+$/, '') };
    return assertRuns(command!, args, { cwd: folder, env: { ...process.env, ...variables } });
  }

  /** A command in a container. */
  exec(container: string, ...words: readonly string[]): Promise<string> {
    return this.podman('exec', container, ...words);
  }

  /** What a container says of itself, such as `{{.State.ExitCode}}`. */
  async inspect(name: string, format: string): Promise<string> {
    return (await this.podman('inspect', '--format', format, name)).trim();
  }

  dispose(): void {
    clear();
    this.#holder.kill('SIGKILL');
  }
}

/** Ends all containers, and removes everything that was made. */
function clear(): void {
  spawnSync(process.execPath, [inRepository('tests/suites/image/podman.mjs'), process.env['IMAGE_FOLDER']!], {
    stdio: 'inherit',
  });
}
