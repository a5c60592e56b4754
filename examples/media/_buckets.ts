// Reviews are kept in 256 entities, by the first two digits of the review's id. One entity for all would
// make every compose wait for every other; one for each review could not be counted.

export const BUCKETS = Array.from({ length: 256 }, (_, number) => number.toString(16).padStart(2, "0"));

export const bucketOf = (id: string) => id.slice(0, 2);
