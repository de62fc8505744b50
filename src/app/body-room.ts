import { bodiesInFlightBytesDefault, type LimitsConfig } from '../config/sections/server.ts';
import { copiesInHeap, copiesWhileParsed, largestBody, memoryForBodies } from '../inference/http/body-budget.ts';
import type { ServiceRecord } from '../platform/log.ts';
import { heapRoomBytes, isContained, memoryLimitBytes, othersBytes, residentBytes } from '../platform/memory.ts';

/** What the process takes with a load of ordinary requests, above what it has when it starts: garbage, connections, threads. */
const workingBytes = 48 * 1_048_576;
/** The rest is for what is not foreseen, and below the share from which on new work is refused. */
const usableShare = 0.8;
/** As much as is taken where there is enough memory (contracts decision 23). */
const bytesMaxByDefault = memoryForBodies(bodiesInFlightBytesDefault);
/** So that small requests are served in any case. */
const bytesMin = memoryForBodies(1_048_576);

/** The kernel's own grows a little by itself. */
const unnotedBytes = 16 * 1_048_576;

/** The memory below which the service warns when it starts. */
export const leastMemoryBytes = 256 * 1_048_576;

/**
 * How much memory bodies may take: as much as there is, of the container or the machine and of the heap, beside what the process
 * has at its start (now), what it works with, and what others have.
 */
export class BodyRoom {
  readonly #processes: number;
  readonly #restBytes = residentBytes();
  readonly #heapBytes = heapRoomBytes();
  /** What others had in the container when the process started, the kernel's own among them. On a machine they may end. */
  readonly #othersBytes: number;

  /** `processes`: like this one, which share the memory. */
  constructor(processes: number) {
    this.#processes = processes;
    this.#othersBytes = isContained() ? this.#othersNow() : 0;
  }

  /** With what others have now. The operator's own figure is theirs to answer for. */
  bytes(limits: Limits): number {
    const others = this.#othersNow();
    const noted = others > this.#othersBytes + unnotedBytes ? others : this.#othersBytes;
    return configured(limits) ?? this.#fitting(limits, noted);
  }

  /** With what others had at the start: what does not fit there never does. */
  bytesAtStart(limits: Limits): number {
    return configured(limits) ?? this.#fitting(limits, this.#othersBytes);
  }

  /** What the operator should know: there is too little memory for what the configuration allows, or for the service. */
  lack(limits: Limits & Pick<LimitsConfig, 'bodyBytesMax'>): ServiceRecord | undefined {
    const fitting = largestBody(this.#fitting(limits, this.#othersBytes));
    const { bodiesInFlightBytesMax: allowed = 0 } = limits;
    const memory = Math.min(limits.memoryBytesMax ?? Infinity, memoryLimitBytes() / this.#processes);
    if (memory >= leastMemoryBytes && allowed <= fitting && limits.bodyBytesMax <= fitting) return undefined;
    return {
      // Less than the largest body that may be sent is no mistake: such a body is refused.
      level: memory < leastMemoryBytes || allowed > fitting ? 'warn' : 'info',
      event: 'little_memory',
      detail: {
        memory_bytes: memory,
        least_memory_bytes: leastMemoryBytes,
        bodies_fitting_bytes: fitting,
        body_bytes_max: limits.bodyBytesMax,
        ...(allowed > fitting ? { bodies_in_flight_bytes_max: allowed } : {}),
      },
    };
  }

  /** Workers are each other's others, and have equal shares. */
  #othersNow(): number {
    return this.#processes > 1 ? 0 : othersBytes();
  }

  #fitting({ memoryBytesMax = Infinity }: Limits, othersBytes: number): number {
    const shared = (memoryLimitBytes() - othersBytes) / this.#processes;
    const resident = Math.min(memoryBytesMax, shared) * usableShare - this.#restBytes - workingBytes;
    const heap = ((this.#heapBytes - workingBytes) * copiesWhileParsed) / copiesInHeap;
    return Math.floor(Math.max(bytesMin, Math.min(bytesMaxByDefault, resident, heap)));
  }
}

type Limits = Pick<LimitsConfig, 'bodiesInFlightBytesMax' | 'memoryBytesMax'>;

const configured = ({ bodiesInFlightBytesMax }: Limits): number | undefined =>
  bodiesInFlightBytesMax === undefined ? undefined : memoryForBodies(bodiesInFlightBytesMax);
