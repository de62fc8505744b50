/** Which top-up this tab has gone to pay: the address to come back to is fixed before the top-up has an id. */
const name = 'topup';

export const rememberTopup = (id: string): void => sessionStorage.setItem(name, id);
export const rememberedTopup = (): string | undefined => sessionStorage.getItem(name) ?? undefined;
