/** What a look at the server of a backend found. */
export interface BackendLook {
  readonly model: string;
  readonly backend: string;
  readonly url: string;
  /** `wrong`: it answers, but not as the configuration says; `down`: it cannot be used now. */
  readonly state: 'ready' | 'wrong' | 'down';
  /** For an operator: what is the matter and what to do; null when it is ready. */
  readonly problem: string | null;
}
