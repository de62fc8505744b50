/** Which of their accounts a person looks at: one per tab, remembered for the next. */
let chosen: string | undefined = sessionStorage.getItem('account') ?? localStorage.getItem('account') ?? undefined;

/** Undefined: the account that they joined first. */
export const accountId = (): string | undefined => chosen;

export function chooseAccount(id: string | undefined): void {
  chosen = id;
  for (const storage of [sessionStorage, localStorage]) {
    if (id === undefined) storage.removeItem('account');
    else storage.setItem('account', id);
  }
}
