// Package rid provides generators of ids that are unique over all processes and rise in each client.
//
//	orders := client.GetIDGenerator("order", rid.WithBlock(1000))
//	id, err := orders.Next(ctx)
//
// A client takes ids from Redis in blocks and hands them out without it. What it has not used when it ends is lost: ids
// have gaps.
//
// # Plain ids
//
// A block begins after the last one, and not before the clock of Redis in microseconds since 1970. So ids have 16
// digits until the year 2286, and fit into the 53 bits of a JavaScript number until 2255.
//
// # Ids with a time
//
// With [WithTimePrefix] an id is the number of seconds since an epoch, and below it a counter of so many bits that
// begins anew each day at midnight UTC. The second is one of the clock of Redis while Next ran, or later: a block
// lapses with its second, by the client's clock and rather too soon than too late. It is later by a second for a new
// key, and while the clock of Redis is behind the last block.
//
// The rest of a block that lapses is used up for the day, as is a block that is lost or not confirmed. So the first
// block of a client has one id, and the next has as many as were used of the last one, twice as many if those were not
// enough for its second, and at most those of [WithBlock]. Choose bits for three times as many ids as a day needs.
//
// # What is promised
//
// While one master serves and has its data, no id is returned twice, and in each client an id that was returned later
// is greater, whatever the clock of Redis does: what it shows is used only where it is ahead of the last block. A block
// whose reply was lost is never used.
//
// In a failover two masters may serve for some seconds, also in one that Sentinel was told to make, and neither knows
// what the other gives out. Blocks that both give out then may overlap, and so may those that the new master has not
// heard of: ids come twice. With redlatch.WithReplicas in every client, for as many replicas as there are, none does: a
// block counts when it is confirmed, and is not used otherwise.
//
// After Redis has lost its data, or a failover the last blocks, ids go on above its clock. Plain ids stay above all earlier
// ones if no more than 1,000,000 a second were taken, counted in whole blocks and on average since the first. Ids with a
// time stay above them if that was not within the same second. Neither do if the clock was set back as well; in each client
// they rise even then.
//
// All processes must use the same options for one name, except WithBlock.
//
// # In Redis
//
// A generator is one string, which never expires. The client keeps the rest of a block for each name.
package rid
