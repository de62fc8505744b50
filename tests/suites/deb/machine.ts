import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, readdirSync, rmdirSync } from 'node:fs';
import { join } from 'node:path';

import { assertRuns, run } from '../../support/run.ts';
import type { Ran } from '../../support/run.ts';
import { until } from '../../support/service.ts';

const path = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';
const bootTimeoutMs = 120_000;

/** A root file system that its own systemd has booted, with processes and a network of its own: nothing but a loopback. */
export class Machine {
  readonly #nspawn: ChildProcess;
  readonly #cgroups: readonly string[];
  #said = '';
  #init = 0;

  private constructor(root: string) {
    // Where systemd runs, nspawn gets a cgroup from it. Elsewhere it would take the one that it is started in, and the machine's
    // systemd would make its slices between those of this computer.
    this.#cgroups = existsSync('/run/systemd/system') ? [] : ownCgroups();
    const options = [
      ...[`--directory=${root}`, '--boot', '--private-network', '--register=no', '--console=read-only'],
      ...['--resolv-conf=off', '--timezone=off', '--link-journal=no'],
      ...(this.#cgroups.length > 0 ? ['--keep-unit'] : []),
    ];
    const script = 'for cgroup in $0; do echo $$ >"$cgroup/cgroup.procs" || exit; done; exec systemd-nspawn "$@"';
    this.#nspawn = spawn('sh', ['-c', script, this.#cgroups.join(' '), ...options], {
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    for (const stream of [this.#nspawn.stdout!, this.#nspawn.stderr!])
      stream.on('data', (text: Buffer) => (this.#said += text.toString()));
  }

  /** Resolves when all that the machine starts by itself has been started. */
  static async boot(root: string): Promise<Machine> {
    const machine = new Machine(root);
    try {
      await until(() => {
        assert.equal(machine.#nspawn.exitCode, null, `systemd-nspawn could not boot it:\n${machine.#said}`);
        machine.#init = initBelow(machine.#nspawn.pid!) ?? 0;
        return machine.#init !== 0;
      }, bootTimeoutMs);
      await until(
        async () => /^(running|degraded)$/m.test((await machine.run('systemctl', 'is-system-running')).said),
        bootTimeoutMs,
      );
    } catch (error) {
      machine.#nspawn.kill('SIGKILL');
      await machine.#ended();
      throw new Error(`the machine did not boot:\n${machine.#said}`, { cause: error });
    }
    return machine;
  }

  /** Before a command of this computer, so that it runs in the machine's network. */
  get network(): readonly string[] {
    return ['nsenter', '--target', String(this.#init), '--net'];
  }

  /** A command of the machine's own, of root, with nothing of this process's environment. */
  run(...words: readonly string[]): Promise<Ran> {
    const [command, ...args] = this.#inside(words);
    return run(command!, args);
  }

  assertRuns(...words: readonly string[]): Promise<string> {
    const [command, ...args] = this.#inside(words);
    return assertRuns(command!, args);
  }

  /** As a person shuts a machine down: its services are stopped first. */
  async shutDown(): Promise<void> {
    if (this.#nspawn.exitCode === null) this.#nspawn.kill('SIGTERM');
    await this.#ended();
  }

  #inside(words: readonly string[]): readonly string[] {
    const namespaces = ['--mount', '--uts', '--ipc', '--net', '--pid', '--cgroup', '--root', '--wd'];
    const variables = [`PATH=${path}`, 'HOME=/root', 'DEBIAN_FRONTEND=noninteractive', 'SYSTEMD_PAGER='];
    return ['nsenter', '--target', String(this.#init), ...namespaces, 'env', '-i', ...variables, ...words];
  }

  async #ended(): Promise<void> {
    if (this.#nspawn.exitCode === null && this.#nspawn.signalCode === null)
      await new Promise((resolve) => this.#nspawn.once('close', resolve));
    for (const cgroup of this.#cgroups) removeCgroup(cgroup);
  }
}

/** One in each hierarchy that systemd could use: the only one, or those of version 1 beside it. */
function ownCgroups(): readonly string[] {
  const base = '/sys/fs/cgroup';
  const hierarchies = ['', 'systemd', 'unified'].map((name) => join(base, name));
  const made = hierarchies
    .filter((folder) => existsSync(join(folder, 'cgroup.procs')))
    .map((folder) => join(folder, `tokenhouse-deb-${process.pid}`));
  for (const folder of made) mkdirSync(folder);
  return made;
}

function removeCgroup(folder: string): void {
  for (const entry of readdirSync(folder, { withFileTypes: true }))
    if (entry.isDirectory()) removeCgroup(join(folder, entry.name));
  rmdirSync(folder);
}

/** The machine's first process: nspawn's child, once it has become systemd. */
function initBelow(nspawn: number): number | undefined {
  const children = readFileSync(`/proc/${nspawn}/task/${nspawn}/children`, 'utf8').trim().split(' ').filter(Boolean);
  const found = children.find((pid) => nameOf(pid) === 'systemd');
  return found === undefined ? undefined : Number(found);
}

function nameOf(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/comm`, 'utf8').trim();
  } catch {
    // It has ended meanwhile.
    return '';
  }
}
