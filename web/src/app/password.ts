/** What the API takes as a password, for fields of one. */
export const passwordLimits = { minLength: 10, maxLength: 200 } as const;
