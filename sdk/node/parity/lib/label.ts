// An enum and a parameter property have a meaning at run time: they are rewritten, not only stripped.
export enum Size {
  Small = "S",
  Large = "L",
}

export class Label {
  constructor(private readonly size: Size) {}
  get text(): string {
    return `size ${this.size}`;
  }
}
