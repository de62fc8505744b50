import { bodiesInFlightBytesDefault, type LimitsConfig } from '../config/sections/server.ts';
import { copiesInHeap, copiesWhileParsed, largestBody, memoryForBodies } from '../inference/http/body-budget.ts';
import type { ServiceRecord } from '../platform/log.ts';
import { heapRoomBytes, isContained, memoryLimitBytes, othersBytes, residentBytes } from '../platform/memory.ts';

/** Memory that a load of ordinary requests takes in addition to that at the start: garbage, connections, threads. */
const workingBytes = 48 * 1_048_576;
/** The rest is a reserve, below the share at which new work is refused. */
const usableShare = 0.8;
/** Used where there is enough memory (contracts decision 23). */
const bytesMaxByDefault = memoryForBodies(bodiesInFlightBytesDefault);
/** Ensures that small requests are always served. */
const bytesMin = memoryForBodies(1_048_576);

/** The kernel's own memory grows slightly by itself. */
const unnotedBytes = 16 * 1_048_576;

/** The memory below which the service warns when it starts. */
export const leastMemoryBytes = 256 * 1_048_576;

/**
 * How much memory bodies may take: what remains of the container's or machine's memory and of the heap after what the process uses
 * at its start (now), what it needs for its work, and what others use.
 */
export class BodyRoom {
  readonly #processes: number;
  readonly #restBytes = residentBytes();
  readonly #heapBytes = heapRoomBytes();
  /** What others used in the container when the process started, including the kernel. On a machine they may end. */
  readonly #othersBytes: number;

  /** `processes`: the number of processes like this one that share the memory. */
  constructor(processes: number) {
    this.#processes = processes;
    this.#othersBytes = isContained() ? this.#othersNow() : 0;
  }

  /** Considers what others use now. An operator's own figure is used as it is. */
  bytes(limits: Limits): number {
    const others = this.#othersNow();
    const noted = others > this.#othersBytes + unnotedBytes ? others : this.#othersBytes;
    return configured(limits) ?? this.#fitting(limits, noted);
  }

  /** Considers what others used at the start: what does not fit then never does. */
  bytesAtStart(limits: Limits): number {
    return configured(limits) ?? this.#fitting(limits, this.#othersBytes);
  }

  /** A warning to the operator that memory is too small for what the configuration allows, or for the service. */
  lack(limits: Limits & Pick<LimitsConfig, 'bodyBytesMax'>): ServiceRecord | undefined {
    const fitting = largestBody(this.#fitting(limits, this.#othersBytes));
    const { bodiesInFlightBytesMax: allowed = 0 } = limits;
    const memory = Math.min(limits.memoryBytesMax ?? Infinity, memoryLimitBytes() / this.#processes);
    if (memory >= leastMemoryBytes && allowed <= fitting && limits.bodyBytesMax <= fitting) return undefined;
    return {
      // Less than the largest body that may be sent is not a mistake: such a body is refused.
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

  /** With several workers the others are workers too, and have equal shares. */
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
