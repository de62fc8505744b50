/** The result of checking the server of a backend. */
export interface BackendLook {
  readonly model: string;
  readonly backend: string;
  readonly url: string;
  /** `wrong`: it answers, but not as the configuration says; `down`: it cannot be used now. */
  readonly state: 'ready' | 'wrong' | 'down';
  /** For an operator: the fault and what to do about it; null when it is ready. */
  readonly problem: string | null;
}
