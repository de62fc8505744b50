import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** A control group of Linux that bounds the memory of a process and its children, as a container does. Needs root. */
export class MemoryCgroup {
  readonly #folder: string;
  readonly #isV2: boolean;

  /** Throws with what is missing where none can be made. */
  constructor(name: string, bytesMax: number) {
    const parent = ['/sys/fs/cgroup/memory', '/sys/fs/cgroup'].find((folder) =>
      existsSync(join(folder, 'cgroup.procs')),
    );
    if (parent === undefined) throw new Error(missing('no control groups are mounted at /sys/fs/cgroup'));
    this.#isV2 = parent === '/sys/fs/cgroup';
    this.#folder = join(parent, `tokenhouse-${name}-${process.pid}`);
    try {
      if (this.#isV2) writeFileSync(join(parent, 'cgroup.subtree_control'), '+memory');
      mkdirSync(this.#folder);
      this.#write(this.#isV2 ? 'memory.max' : 'memory.limit_in_bytes', String(bytesMax));
      // Without swap, as in most containers: where the kernel does not count it there is none to forbid.
      const swap = this.#isV2 ? 'memory.swap.max' : 'memory.memsw.limit_in_bytes';
      if (existsSync(join(this.#folder, swap))) this.#write(swap, this.#isV2 ? '0' : String(bytesMax));
    } catch (error) {
      this.remove();
      throw new Error(missing((error as Error).message), { cause: error });
    }
  }

  /** A command that joins the group and becomes the one after it (`TestServiceOptions.within`). */
  get within(): readonly string[] {
    return ['sh', '-c', 'echo $$ > "$0" && exec "$@"', join(this.#folder, 'cgroup.procs')];
  }

  /** The most that its processes have had at once, page cache included. */
  get peakBytes(): number {
    return Number(this.#read(this.#isV2 ? 'memory.peak' : 'memory.max_usage_in_bytes'));
  }

  /** How often the kernel has ended one of its processes. */
  get kills(): number {
    const events = this.#read(this.#isV2 ? 'memory.events' : 'memory.oom_control');
    return Number(/^oom_kill (\d+)$/m.exec(events)?.[1] ?? Number.NaN);
  }

  /** Once its processes are gone. */
  remove(): void {
    if (!existsSync(this.#folder)) return;
    for (let tries = 0; ; tries++) {
      try {
        rmdirSync(this.#folder);
        return;
      } catch (error) {
        // Processes that were killed a moment ago are still leaving.
        if (tries === 100) throw error;
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 50);
      }
    }
  }

  #read(file: string): string {
    return readFileSync(join(this.#folder, file), 'utf8');
  }

  #write(file: string, text: string): void {
    writeFileSync(join(this.#folder, file), text);
  }
}

const missing = (why: string): string =>
  `This test bounds memory as a container does, and needs Linux, root, and control groups with the memory controller that can be written at /sys/fs/cgroup (in a container: --privileged, or a private cgroup namespace): ${why}`;
