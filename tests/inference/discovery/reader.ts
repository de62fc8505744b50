import type { Discovered } from '../../../src/config/discovered.ts';
import type { SourceReader } from '../../../src/inference/discovery/source.ts';

/** Remembers what a source reports. */
export class Reports implements SourceReader {
  readonly lists: (readonly Discovered[])[] = [];
  readonly problems: string[] = [];
  readonly listed = (servers: readonly Discovered[]): void => void this.lists.push(servers);
  readonly failed = (problem: string): void => void this.problems.push(problem);

  /** The URLs of the last list. */
  get urls(): readonly string[] {
    return (this.lists.at(-1) ?? []).map(({ url }) => url);
  }
}
